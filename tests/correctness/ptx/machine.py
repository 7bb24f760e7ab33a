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
_NOTHING = ("nop", "setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32")
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

    def run(self, seed: int) -> int:
        """Run to the end in the interleaving that belongs to a seed; return how many instructions that took."""
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
                waits[index] = next(runs[index])
            except StopIteration:
                going.remove(index)
        return sum(group.executed for group in self.groups)

    def _all_at_one_barrier(self, waits: list[Wait | None]) -> bool:
        numbers = [wait.number for wait in waits if isinstance(wait, BlockBarrier)]
        return len(numbers) == len(waits) and len(set(numbers)) == 1


class Warpgroup:
    """128 lanes that execute one instruction together; ``rows``: its warps among all of the block's."""

    def __init__(self, block: Block, program: Program, code: list[Handler], index: int) -> None:
        self.block, self.index, self.executed = block, index, 0
        self.rows = slice(WARPS * index, WARPS * index + WARPS)
        self.warps = np.arange(self.rows.start, self.rows.stop).repeat(WARP)
        self.registers: dict[str, np.ndarray] = {
            "%tid.x": np.arange(LANES * index, LANES * index + LANES, dtype=np.uint32),
            "%ctaid.x": np.full(LANES, block.number, np.uint32),
        }
        self.unfenced: set[str] = set()
        self.products = Products()
        self._program, self._code = program, code

    def run(self, rng: random.Random) -> Iterator[Wait | None]:
        """Execute, yielding at the end of a turn (None) and at every wait."""
        at, turn = 0, rng.randint(*_TURN)
        mask: Mask = None
        meet = -1
        while True:
            # Lanes that a branch sent ahead wait at its target for those that went through.
            if at == meet:
                mask, meet = None, -1
            instruction, handler = self._program.instructions[at], self._code[at]
            self.block.reached.add(at)
            at += 1
            self.executed += 1
            turn -= 1
            if turn < 0:
                turn = rng.randint(*_TURN)
                yield None
            try:
                active = self._active(instruction, mask)
                if instruction.op in _BRANCHES:
                    target = self._program.labels[instruction.operands[0]]
                    if mask is not None or (active is not None and active.any() and not active.all()):
                        if mask is not None or active is None or target < at:
                            raise UnknownInstructionError("a branch of some lanes that is no simple way forward")
                        mask, meet = ~active, target
                    elif active is None or active.all():
                        at = target
                    continue
                if instruction.op == "ret":
                    if active is not None:
                        raise UnknownInstructionError("a return of some lanes")
                    self.products.require_none()
                    return
                wait = handler(self, active)
            except KeyError as missing:
                what = f"{missing.args[0]} is read before anything wrote it, or while wgmma computes it"
                raise EmulationError(f"warpgroup {self.index}, {instruction.text[:100]}: {what}") from missing
            except EmulationError as fault:
                raise type(fault)(f"warpgroup {self.index}, {instruction.text[:100]}: {fault}") from fault
            if wait is not None:
                yield wait
                wait.end(self)

    def _active(self, instruction: Instruction, mask: Mask) -> Mask:
        if not instruction.predicate:
            return mask
        predicate = self.registers[instruction.predicate]
        chosen = ~predicate if instruction.negated else predicate
        return chosen if mask is None else chosen & mask


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
