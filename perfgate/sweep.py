"""The warm-up sweep: one request at a time of every prompt length that a kernel is compiled for, until none stalls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Send = Callable[[Sequence[int], float], None]
"""(input ids, timeout in seconds): sends one request for one token and returns when it was answered."""

Show = Callable[[str], None]

FIRST_ID = 16
"""Ids below are a tokenizer's special ones, which a model may treat apart."""


def random_ids(dice: random.Random, length: int, vocabulary: int) -> list[int]:
    """A prompt of so many ids, none of them special, that no cached prefix matches."""
    return [dice.randrange(FIRST_ID, vocabulary) for _ in range(length)]


class SweepTimeout(RuntimeError):
    """The sweep was not done by its deadline; the message says how far it came."""


@dataclass(frozen=True)
class Swept:
    """How the sweep ended: ``slowest_s`` is the longest request of the last round, ``length`` its prompt."""

    rounds: int
    seconds: float
    slowest_s: float
    length: int
    clean: bool

    @property
    def note(self) -> str:
        """What the report says of it."""
        text = f"warm-up sweep: {self.rounds} rounds in {self.seconds:.0f} s"
        if self.clean:
            return text
        return (
            f"{text}, and its last round still stood still ({self.slowest_s:.1f} s at {self.length} prompt tokens): "
            "kernels may be compiled in the samples; raise warmup.max_rounds, or see whether jit_caches are kept"
        )


def sweep(
    lengths: Sequence[int],
    send: Send,
    *,
    vocabulary: int,
    seed: int,
    stall_seconds: float,
    max_rounds: int,
    deadline_seconds: float,
    show: Show,
    clock: Callable[[], float] = time.monotonic,
) -> Swept:
    """Send every length once a round until no request of a round took longer than ``stall_seconds``.

    Lengths are exact counts of prompt tokens: random ids of ``[FIRST_ID, vocabulary)``, which no cached prefix matches.
    Raises SweepTimeout after ``deadline_seconds``, and what ``send`` raises.
    """
    dice, began = random.Random(seed), clock()
    slowest, at = 0.0, 0
    for number in range(1, max_rounds + 1):
        slowest, at = 0.0, 0
        for done, length in enumerate(lengths):
            left = deadline_seconds - (clock() - began)
            if left <= 0:
                raise SweepTimeout(
                    f"the warm-up sweep was not done within {deadline_seconds:.0f} s: "
                    f"round {number} of at most {max_rounds}, {done} of {len(lengths)} prompt lengths"
                )
            show(f"warm-up sweep: round {number}, prompt of {length} tokens ({done + 1} of {len(lengths)})")
            asked = clock()
            send(random_ids(dice, length, vocabulary), left)
            if (took := clock() - asked) > slowest:
                slowest, at = took, length
        if slowest <= stall_seconds:
            return Swept(number, clock() - began, slowest, at, clean=True)
    return Swept(max_rounds, clock() - began, slowest, at, clean=False)
