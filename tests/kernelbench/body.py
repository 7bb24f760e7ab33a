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

from perfgate.kernelbench.shapes import Shape
from perfgate.kernelbench.timing import BLOCKS, REPLAYS, Replayer


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
    """One implementation on one shape. ``replay`` is the thing to time; ``verify`` judges what it wrote."""

    def __init__(self, shape: Shape, one: Implementation, device: torch.device) -> None:
        self._problem, self._check = problem(shape, device), one.check
        self._replayer = Replayer([one.make(inputs) for inputs in self._problem.sets], device)
        self._since_capture = 0
        self.busy: Callable[[float], None] = self._replayer.busy

    def replay(self) -> None:
        """One timed replay; a new block of them starts with graphs captured anew, and the old one's output checked."""
        if self._since_capture == REPLAYS // BLOCKS:
            self.verify()
            self._replayer.capture()
            self._since_capture = 0
        self._since_capture += 1
        self._replayer.once()

    def verify(self) -> None:
        """Every set that was replayed since the capture holds the right output. Raises AssertionError."""
        for at, (inputs, want) in enumerate(zip(self._problem.sets, self._problem.expected, strict=True)):
            if at < self._since_capture:
                self._check(inputs, want, self._replayer.outputs[at])
