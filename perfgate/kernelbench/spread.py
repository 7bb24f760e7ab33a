"""How far runs of unchanged code lie apart, and which change of a time matters beside that (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfgate.stats import NOTHING, Observed, between_starts
from perfgate.stats.variance import Side

FIXED_US, SHARE = 0.07, 0.002
"""Standard deviation between runs: so many microseconds, and such a share of the time. Two runs on one H200 gave the medians
of 33 kernels, for which 0.065 us and 0.06 % are the likeliest; the share leaves room for what another day changes, until a
baseline of several runs shows it."""

SMALLEST = 0.02
"""A change of less than this share of a kernel's own time is not gated: it is a part of a step, whose own bound is 1.5 %."""

APART = 5.0
"""And no change below so many standard errors is: PASS has to exclude it, and unchanged code to pass. Simulated in the tests."""


def between_runs(us: float) -> float:
    """Relative standard deviation between runs of a median of so many microseconds, until runs show another."""
    return math.hypot(FIXED_US / us, SHARE)


def smallest_us(us: float, floor_us: float, starts: Sequence[int], base_starts: Sequence[int]) -> float:
    """The change in microseconds that is asked about: of the time net of an empty graph's, and no less than runs can tell.

    ``starts`` name the run of each sample of the one and the other side: it takes several to ask for less.
    """
    runs = 1 / len(set(starts)) + 1 / len(set(base_starts))
    return max(SMALLEST * max(us - floor_us, 0.0), APART * between_runs(us) * us * math.sqrt(runs))


def elsewhere(key: str, us: float, sides: Mapping[str, Sequence[Side]], medians: Mapping[str, float]) -> Observed:
    """What the other shapes of the same runs show of the spread between runs, at a time of ``us``.

    ``sides``: by shape, logarithms of the samples of each side with their runs. A short kernel's spread is a larger share
    of its time, so each is put in units of what is assumed for it.
    """
    total, df = 0.0, 0
    for other, pair in sides.items():
        seen = between_starts(pair) if other != key else NOTHING
        total += seen.df * seen.variance / between_runs(medians[other]) ** 2
        df += seen.df
    return Observed(total / df * between_runs(us) ** 2, df) if df else NOTHING
