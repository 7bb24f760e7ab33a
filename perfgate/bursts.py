"""The warm-up's bursts: so many prompts at once, for kernels that are compiled by the number of requests in a step.

SGLang's page allocators are such: one kernel for each power of two of the prompts that a prefill step takes in, and one for
each of the requests in a decode step. A sweep of single prompts never meets them, and the first samples would.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfgate.sweep import Show, SweepTimeout, random_ids

SendMany = Callable[[Sequence[Sequence[int]], Sequence[int], float], None]
"""(input ids of each prompt, tokens to generate of each, timeout in seconds): returns when all are answered."""

PROMPT_TOKENS = 256
"""Of a prompt at most: it is the number of prompts that counts."""


@dataclass(frozen=True)
class Burst:
    """How the bursts ended: ``compiled`` files appeared in the last round. None: there is no cache to look into."""

    rounds: int
    seconds: float
    compiled: int | None

    @property
    def note(self) -> str:
        """What the report says of them."""
        text = f"warm-up bursts: {self.rounds} rounds in {self.seconds:.0f} s"
        if not self.compiled:
            return text
        return (
            f"{text}, and {self.compiled} files were still compiled in the last; samples that meet more are taken again"
        )


def output_lengths(size: int) -> list[int]:
    """Tokens to generate of each of ``size`` requests: those above a power of two end first, then half of the rest, and so
    on, so that the decode batch passes through every power of two below."""
    lengths: list[int] = []
    left, tokens = size, 2
    while left > 0:
        staying = 1 << ((left - 1).bit_length() - 1) if left > 1 else 0
        lengths += [tokens] * (left - staying)
        left, tokens = staying, tokens + 2
    return lengths


def bursts(
    sizes: Sequence[int],
    send: SendMany,
    compiled: Callable[[float], int] | None,
    *,
    prompt_tokens: int,
    vocabulary: int,
    seed: int,
    max_rounds: int,
    deadline_seconds: float,
    show: Show,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> Burst:
    """Send a burst of every size once a round, until a round compiles nothing; once where ``compiled`` is None.

    ``compiled`` counts the compiled files that appeared since a time (seconds since the epoch). Prompts are random ids, which
    no cached prefix matches. Raises SweepTimeout after ``deadline_seconds``, and what ``send`` raises.
    """
    dice, began = random.Random(seed), clock()
    appeared: int | None = None
    number = 0
    while number < (max_rounds if compiled else 1):
        number += 1
        since = wall()
        for size in sizes:
            left = deadline_seconds - (clock() - began)
            if left <= 0:
                raise SweepTimeout(
                    f"the warm-up bursts were not done within {deadline_seconds:.0f} s: round {number}, {size} prompts"
                )
            show(f"warm-up bursts: round {number}, {size} prompts at once (of {', '.join(map(str, sizes))})")
            tokens = min(prompt_tokens, PROMPT_TOKENS)
            prompts = [random_ids(dice, tokens, vocabulary) for _ in range(size)]
            send(prompts, output_lengths(size), left)
        appeared = compiled(since) if compiled else None
        if not appeared:
            break
    return Burst(number, clock() - began, appeared)
