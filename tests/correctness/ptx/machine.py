"""A block of warpgroups: what each executes, what it waits for, and whose turn it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from ptx import access, arithmetic, synchronisation, wgmma
from ptx.clocks import Clocks, MBarrier
from ptx.errors import DeadlockError, EmulationError, UnknownInstructionError
from ptx.memory import GlobalMemory, SharedMemory
from ptx.parse import Instruction, Program
from ptx.registers import LANES, WARP, Mask, reader
from ptx.synchronisation import BlockBarrier, Wait
from ptx.wgmma import Products

WARPS = LANES // WARP  # of a warpgroup
_BRANCHES = ("bra", "bra.uni")
# Instructions that change nothing here: how registers are shared out, and what a fault is replaced by.
# The next kernel may be brought onto the card: it waits until this one has ended, so that nothing here depends on it.
_NEXT_MAY_START = "griddepcontrol.launch_dependents"
_NOTHING = ("nop", "setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32", _NEXT_MAY_START)
# How many instructions a warpgroup has at a turn, and how much likelier one is to have it than another: a warpgroup that
# is far ahead or far behind is what a mistake in the barriers needs.
_TURN = (20, 400)
_FAVOURS = ((1, 1, 1), (1, 30, 900))

Handler = Callable[["Warpgroup", Mask], Wait | None]


class Block:
    """One block of a launch: ``groups`` warpgroups, ``shared_bytes`` as the compiled kernel's metadata has them."""

    def __init__(
        self, program: Program, number: int, parameters: list[int], memory: GlobalMemory, shared_bytes: int, groups: int
    ) -> None:
        self.number, self.parameters, self.memory = number, parameters, memory
        self.clocks = Clocks(WARPS * groups)
        self.shared = SharedMemory(shared_bytes, self.clocks)
        self.mbarriers: dict[int, MBarrier] = {}
        self.barrier_owners: dict[int, int] = {}
        code = [_decoded(instruction, program) for instruction in program.instructions]
        self.reached: set[int] = set()
        """Which of the program's instructions were executed."""
        self.groups = [Warpgroup(self, program, code, index) for index in range(groups)]

    def run(self, seed: int) -> None:
        """Run to the end in the interleaving that belongs to a seed."""
        rng = random.Random(seed)
        favour = rng.sample(list(rng.choice(_FAVOURS)) * len(self.groups), len(self.groups))
        runs = [group.run(rng) for group in self.groups]
        waits: list[Wait | None] = [None] * len(runs)
        going = set(range(len(runs)))
        while going:
            if len(going) == len(runs) and self._all_at_one_barrier(waits):
                self.clocks.meet(slice(0, len(self.clocks.known)))
                waits = [None] * len(runs)
            ready = [index for index in sorted(going) if (wait := waits[index]) is None or wait.over(self)]
            if not ready:
                told = "; ".join(f"warpgroup {index} waits for {waits[index]}" for index in sorted(going))
                raise DeadlockError(f"nobody can go on: {told}; {len(runs) - len(going)} of {len(runs)} have ended")
            (index,) = rng.choices(ready, [favour[each] for each in ready])
            try:
                # As on the card: an overflow or a NaN is a result.
                with np.errstate(all="ignore"):
                    waits[index] = next(runs[index])
            except StopIteration:
                going.remove(index)

    def _all_at_one_barrier(self, waits: list[Wait | None]) -> bool:
        numbers = [wait.number for wait in waits if isinstance(wait, BlockBarrier)]
        return len(numbers) == len(waits) and len(set(numbers)) == 1


class Warpgroup:
    """128 lanes that execute one instruction together; ``rows``: its warps among all of the block's."""

    def __init__(self, block: Block, program: Program, code: list[Handler], index: int) -> None:
        self.block, self.index = block, index
        self.rows = slice(WARPS * index, WARPS * index + WARPS)
        self.warps = np.arange(self.rows.start, self.rows.stop).repeat(WARP)
        self.registers: dict[str, np.ndarray] = {
            "%tid.x": np.arange(LANES * index, LANES * index + LANES, dtype=np.uint32),
            "%ctaid.x": np.full(LANES, block.number, np.uint32),
        }
        self.unfenced: set[str] = set()
        self.products = Products()
        self._program, self._code = program, code
        self._mask: Mask = None
        self._meet: int | None = None

    def run(self, rng: random.Random) -> Iterator[Wait | None]:
        """Execute, yielding at the end of a turn (None) and at every wait."""
        at, turn = 0, rng.randint(*_TURN)
        while True:
            if turn == 0:
                turn = rng.randint(*_TURN)
                yield None
            turn -= 1
            instruction = self._program.instructions[at]
            try:
                wait, following = self._execute(instruction, at)
            except KeyError as missing:
                what = f"{missing.args[0]} is read before anything wrote it, or while wgmma computes it"
                raise EmulationError(f"warpgroup {self.index}, {instruction.text[:100]}: {what}") from missing
            except EmulationError as fault:
                raise type(fault)(f"warpgroup {self.index}, {instruction.text[:100]}: {fault}") from fault
            if following is None:
                return
            at = following
            if wait is not None:
                yield wait
                wait.end(self)

    def _execute(self, instruction: Instruction, at: int) -> tuple[Wait | None, int | None]:
        """Execute one instruction; return what it waits for, and the number of the next (None: the end)."""
        self.block.reached.add(at)
        # Lanes that a branch sent ahead wait at its target for those that went through.
        if at == self._meet:
            self._mask = self._meet = None
        active = self._mask
        if instruction.predicate:
            predicate = self.registers[instruction.predicate]
            chosen = ~predicate if instruction.negated else predicate
            active = chosen if active is None else chosen & active
        if instruction.op in _BRANCHES:
            return None, self._branch(self._program.labels[instruction.operands[0]], active, at + 1)
        if instruction.op == "ret":
            if active is not None:
                raise UnknownInstructionError("a return of some lanes")
            self.products.require_none()
            return None, None
        return self._code[at](self, active), at + 1

    def _branch(self, target: int, active: Mask, following: int) -> int:
        if self._mask is not None:
            raise UnknownInstructionError("a branch inside of one that some lanes took")
        if active is None or active.all():
            return target
        if active.any():
            if target < following:
                raise UnknownInstructionError("a branch back that only some lanes take")
            self._mask, self._meet = ~active, target
        return following


def _decoded(instruction: Instruction, program: Program) -> Handler:
    """The handler of an instruction; UnknownInstructionError, whether or not it would be reached, if nobody knows it."""
    if instruction not in program.decoded:
        program.decoded[instruction] = _decode(instruction, program)
    return program.decoded[instruction]


def _decode(instruction: Instruction, program: Program) -> Handler:
    if instruction.op in _NOTHING or instruction.op in _BRANCHES or instruction.op == "ret":
        return lambda group, active: None
    if instruction.predicate:
        reader(instruction.predicate, "pred", program)
    for module in (arithmetic, access, synchronisation, wgmma):
        handler = module.decode(instruction, program)
        if handler is not None:
            return handler
    raise UnknownInstructionError(instruction.text)
