"""Barriers and fences: what they wait for, and what they tell.

PTX ISA, "bar, barrier", "mbarrier" and "Memory Consistency Model: Proxies".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptx.clocks import MBarrier
from ptx.errors import EmulationError, UnknownInstructionError
from ptx.parse import Instruction, Program
from ptx.registers import LANES, Mask, address, reader, writer

if TYPE_CHECKING:
    from ptx.machine import Block, Warpgroup

_FENCES = ("fence.proxy.async.shared::cta", "fence.proxy.async")
_TRY_WAIT = re.compile(r"mbarrier\.try_wait\.parity\.shared(::cta)?\.b64")


@dataclass(frozen=True)
class BlockBarrier:
    """All of the block's threads at barrier ``number``; whoever runs the block sees when all have come."""

    number: int

    def over(self, block: Block) -> bool:
        return False

    def end(self, group: Warpgroup) -> None:
        pass


@dataclass(frozen=True)
class Phase:
    """The end of the phase of a parity at the mbarrier at an address."""

    at: int
    parity: int

    def over(self, block: Block) -> bool:
        return block.mbarriers[self.at].passed(self.parity)

    def end(self, group: Warpgroup) -> None:
        group.block.clocks.acquire(group.rows, group.block.mbarriers[self.at].told)


Wait = BlockBarrier | Phase
Handler = Callable[["Warpgroup", Mask], Wait | None]


def decode(instruction: Instruction, program: Program) -> Handler | None:
    """What the instruction does; None if it is none of these."""
    op = instruction.op
    if op in ("bar.sync", "barrier.sync"):
        return _barrier(instruction)
    if op in _FENCES:
        return lambda group, active: group.block.clocks.fence(group.rows)
    if op == "mbarrier.init.shared::cta.b64":
        return _init(instruction, program)
    if op == "mbarrier.arrive.shared::cta.b64" and instruction.operands[0] == "_":
        return _arrive(instruction, program)
    if _TRY_WAIT.fullmatch(op):
        return _wait(instruction, program)
    return None


def _barrier(instruction: Instruction) -> Handler:
    number, *threads = map(int, instruction.operands)
    if threads not in ([], [LANES]):
        raise UnknownInstructionError(f"{instruction.text}: neither a warpgroup's threads nor all")

    def barrier(group: Warpgroup, active: Mask) -> Wait | None:
        if active is not None:
            raise EmulationError("a barrier of some lanes")
        # A number that two sets of threads use at a time lets either through too early.
        owner = group.index if threads else -1
        if group.block.barrier_owners.setdefault(number, owner) != owner:
            raise EmulationError(f"barrier {number} is used by two sets of threads")
        if not threads:
            return BlockBarrier(number)
        group.block.clocks.meet(group.rows)
        return None

    return barrier


def _one_lane(active: Mask) -> int | None:
    """The lane that takes part, None where none does: kernels choose one of one warp."""
    lanes = np.arange(LANES) if active is None else np.flatnonzero(active)
    if len(lanes) > 1:
        raise UnknownInstructionError(f"an mbarrier instruction of {len(lanes)} lanes, not one")
    return int(lanes[0]) if len(lanes) else None


def _of(group: Warpgroup, at: int) -> MBarrier:
    if at not in group.block.mbarriers:
        raise EmulationError(f"there is no mbarrier at {at:#x}")
    barrier = group.block.mbarriers[at]
    barrier.require_known(group.rows, group.block.clocks)
    return barrier


def _init(instruction: Instruction, program: Program) -> Handler:
    where, count = address(instruction.operands[0], program), int(instruction.operands[1])

    def init(group: Warpgroup, active: Mask) -> None:
        lane = _one_lane(active)
        if lane is None:
            return
        at = int(where(group)[lane])
        if at % 8:
            raise EmulationError(f"an mbarrier at {at:#x}, no multiple of 8")
        group.block.mbarriers[at] = MBarrier(count, int(group.warps[lane]), group.block.clocks)

    return init


def _arrive(instruction: Instruction, program: Program) -> Handler:
    where = address(instruction.operands[1], program)

    def arrive(group: Warpgroup, active: Mask) -> None:
        lane = _one_lane(active)
        if lane is None:
            return
        # The lane's warp tells what it knows: what the other three did, only if a barrier of theirs came before.
        _of(group, int(where(group)[lane])).arrive(group.block.clocks.release(int(group.warps[lane])))

    return arrive


def _wait(instruction: Instruction, program: Program) -> Handler:
    """``try_wait`` in its loop: it is not tried again and again, the warpgroup goes on when it succeeds."""
    done, where = writer(instruction.operands[0], "pred", program), address(instruction.operands[1], program)
    parity = reader(instruction.operands[2], "b32", program)

    def wait(group: Warpgroup, active: Mask) -> Wait:
        addresses, parities = where(group), parity(group)
        if active is not None or (addresses != addresses[0]).any() or (parities != parities[0]).any():
            raise UnknownInstructionError("lanes that wait for different barriers or phases")
        _of(group, int(addresses[0]))
        done(group, np.ones(LANES, bool), None)
        return Phase(int(addresses[0]), int(parities[0]))

    return wait
