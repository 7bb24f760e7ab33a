"""Spread within a server start and between starts, and how many samples a question takes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

PRIOR_DF = 4.0
"""Weight, in degrees of freedom, of the between-start spread that a recipe states against what the samples show."""

ELSEWHERE_DF = 8.0
"""Most degrees of freedom that the run's other points count for. With 5 starts a side this point's own are 8, which find
81 % of losses of three noise widths at one false alarm in 200 runs, the others' make it 95 %; more weight would cry wolf
where launches move this point ten times as far as the others (simulated: docs/evaluation.md)."""

DISCORD = 4.0
"""Times the expected variance from which what is seen does away with it: it was a guess."""

Side = tuple[Sequence[float], Sequence[int]]
"""Values of one side of a comparison and, for each, the number of the server start that it was taken on."""


@dataclass(frozen=True)
class Spread:
    """Between-start standard deviation and its degrees of freedom (inf where only the recipe's figure is known)."""

    between: float
    df: float
    starts: int


def pooled_sd(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Standard deviation within ``groups`` pooled over them, and its degrees of freedom (0.0, 0 where it has none)."""
    squares, df = 0.0, 0
    for group in groups:
        if len(group) > 1:
            values = np.asarray(group, dtype=float)
            squares += float(np.sum((values - values.mean()) ** 2))
            df += len(group) - 1
    return (math.sqrt(squares / df), df) if df else (0.0, 0)


def _by_start(side: Side) -> list[list[float]]:
    groups: dict[int, list[float]] = defaultdict(list)
    for value, start in zip(*side, strict=True):
        groups[start].append(value)
    return list(groups.values())


@dataclass(frozen=True)
class Observed:
    """Variance between starts as samples show it, relative, and its degrees of freedom (0, 0: they show nothing)."""

    variance: float
    df: int


NOTHING = Observed(0.0, 0)


def between_starts(sides: Sequence[Side]) -> Observed:
    """Variance between starts within ``sides``, pooled: one-way analysis of variance inside each side.

    A side with one start says nothing about it. The estimate of a side is (mean square between - mean square within) /
    effective samples a start, not below zero.
    """
    weighted, df = 0.0, 0
    for side in sides:
        groups = _by_start(side)
        if len(groups) < 2:
            continue
        within, _ = pooled_sd(groups)
        sizes = [len(g) for g in groups]
        total = sum(sizes)
        grand = sum(sum(g) for g in groups) / total
        mean_square = sum(len(g) * (sum(g) / len(g) - grand) ** 2 for g in groups) / (len(groups) - 1)
        effective = (total - sum(s * s for s in sizes) / total) / (len(groups) - 1)
        weighted += (len(groups) - 1) * max(0.0, (mean_square - within**2) / effective)
        df += len(groups) - 1
    return Observed(weighted / df, df) if df else NOTHING


def moderated_spread(
    sides: Sequence[Side], stated: float, elsewhere: Observed = NOTHING, expected: float | None = None
) -> Spread:
    """Between-start spread of ``sides``, shrunk towards the ``expected`` figure and what is seen ``elsewhere``.

    With one start on each side the ``stated`` figure is all there is. Else it counts as ``PRIOR_DF`` degrees of freedom, or
    the ``expected`` one does where nobody stated any, unless what is seen is far above it (``DISCORD``). What the same run's
    other points show counts as ``ELSEWHERE_DF`` at most, and as no more than there are here: starts
    that move all points alike are the same few everywhere (such moderation: Smyth 2004, doi:10.2202/1544-6115.1027).
    """
    own = between_starts(sides)
    starts = sum(len(set(side[1])) for side in sides)
    if own.df == 0:
        return Spread(stated, math.inf, starts)
    most = min(float(elsewhere.df), ELSEWHERE_DF)
    borrowed = min(most, float(own.df))
    prior, figure = PRIOR_DF, stated
    if expected is not None:
        prior, figure = (0.0 if own.variance > DISCORD * expected**2 else PRIOR_DF), expected

    def pooled(others: float) -> float:
        return (prior * figure**2 + others * elsewhere.variance + own.df * own.variance) / (prior + others + own.df)

    # More of the others may raise the figure, and buys no degrees of freedom: starts of two modes can agree here by chance.
    return Spread(math.sqrt(max(pooled(borrowed), pooled(most))), prior + borrowed + own.df, starts)


def seen_spread(sides: Sequence[Side], stated: float, elsewhere: Observed = NOTHING) -> Spread:
    """Between-start spread where starts alternate and it is most of the noise: what is seen, and no less than ``stated``.

    A stated figure that is too small would be a false alarm here, so it counts for no degrees of freedom. The run's other
    points lend fewer than there are here, and may raise the figure but not lower it: given more weight they cried wolf
    where launches move this point ten times as far as them, and where they move all points alike, so that the others only
    repeat what is seen here (simulated: docs/evaluation.md).
    """
    own = between_starts(sides)
    starts = sum(len(set(side[1])) for side in sides)
    if own.df == 0:
        return Spread(stated, math.inf, starts)
    borrowed = min(elsewhere.df, own.df - 1)
    df = own.df + borrowed
    variance = max(own.variance, (own.df * own.variance + borrowed * elsewhere.variance) / df)
    return Spread(max(stated, math.sqrt(variance)), df, starts)


def between_start_weight(starts: Sequence[int]) -> float:
    """Sum over starts of (its share of the samples) squared: 1 for one start, 1/J for J starts of equal size."""
    total = len(starts)
    return sum((count / total) ** 2 for count in Counter(starts).values())


def fewest(enough: Callable[[int], bool], least: int, most: int) -> int | None:
    """Fewest from ``least`` to ``most`` that are ``enough``, as all more are; None where not even the most are."""
    if least > most or not enough(most):
        return None
    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low
