"""What one timed test does, without pytest: make the inputs, capture, replay, check what the replays wrote."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from kernelbench.checks import expected
from kernelbench.inputs import Inputs, make, sets_of
from kernelbench.peers import Implementation

from perfgate.kernelbench.clock_watch import Busy, State, worst
from perfgate.kernelbench.shapes import Shape
from perfgate.kernelbench.timing import BLOCKS, REPLAYS, Replayer

PER_BLOCK = REPLAYS // BLOCKS
Watch = Callable[[Busy], State]


@dataclass(frozen=True)
class Problem:
    """A shape's inputs, and what the references give on each set of them."""

    sets: tuple[Inputs, ...]
    expected: tuple[Any, ...]


@functools.lru_cache(maxsize=1)
def problem(shape: Shape, device: torch.device) -> Problem:
    """The last shape's problem is kept: its implementations are timed one after another."""
    sets = tuple(make(shape, seed, device) for seed in range(sets_of(shape)))
    return Problem(sets, tuple(expected(inputs) for inputs in sets))


class Trial:
    """One implementation on one shape. ``replay`` is the thing to time; ``verify`` judges what it wrote.

    ``watch`` reads the card's state after each block, while the block's graphs go on replaying; ``state`` is the worst of
    it. Raises timing.TooSlow where all replays would take more than ``most_seconds``.
    """

    def __init__(
        self,
        shape: Shape,
        one: Implementation,
        device: torch.device,
        watch: Watch | None = None,
        most_seconds: float | None = None,
    ) -> None:
        self._problem, self._check, self._watch = problem(shape, device), one.check, watch
        calls = [one.make(inputs) for inputs in self._problem.sets]
        assert PER_BLOCK % len(calls) == 0, (
            f"{PER_BLOCK} replays a block are no multiple of {len(calls)} sets of inputs"
        )
        self._replayer = Replayer(calls, device, most_seconds)
        self._since_capture = 0
        self._states: list[State] = []

    @property
    def state(self) -> State:
        """The card over all blocks so far."""
        return worst(self._states)

    def replay(self) -> None:
        """One timed replay; a new block of them starts with graphs captured anew, and the old one's output checked."""
        if self._since_capture == PER_BLOCK:
            self.verify()
            self._replayer.capture()
            self._since_capture = 0
        self._since_capture += 1
        self._replayer.once()

    def verify(self) -> None:
        """End a block: see that every set that was replayed holds the right output, then read the clocks.

        In this order: clocks are read while further replays go on, which end with any set, and a graph's scratch memory may lie
        where the output of a graph that was captured later does. Raises AssertionError.
        """
        for at, (inputs, want) in enumerate(zip(self._problem.sets, self._problem.expected, strict=True)):
            if at < self._since_capture:
                self._check(inputs, want, self._replayer.outputs[at])
        if self._watch is not None:
            self._states.append(self._watch(self._replayer.busy))
