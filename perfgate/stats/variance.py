"""Spread within a server start and between starts, and how many samples a question takes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

PRIOR_DF = 4.0
"""Weight, in degrees of freedom, of the between-start spread that a recipe states against what the samples show."""

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


def moderated_spread(sides: Sequence[Side], stated: float) -> Spread:
    """Between-start spread: one-way analysis of variance inside each side, shrunk towards the ``stated`` figure.

    A side with one start says nothing about it, so with one start on each side the stated figure is all there is. The
    estimate of a side is (mean square between - mean square within) / effective samples a start, not below zero; the
    stated figure counts as ``PRIOR_DF`` degrees of freedom (such moderation: Smyth 2004, doi:10.2202/1544-6115.1027).
    """
    weighted, df, starts = PRIOR_DF * stated**2, 0, 0
    for side in sides:
        groups = _by_start(side)
        starts += len(groups)
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
    if df == 0:
        return Spread(stated, math.inf, starts)
    return Spread(math.sqrt(weighted / (PRIOR_DF + df)), PRIOR_DF + df, starts)


def between_start_weight(starts: Sequence[int]) -> float:
    """Sum over starts of (its share of the samples) squared: 1 for one start, 1/J for J starts of equal size."""
    total = len(starts)
    return sum((count / total) ** 2 for count in Counter(starts).values())


def samples_needed(half_width: Callable[[int], float], wanted: float, most: int = 10_000) -> int | None:
    """Fewest samples n for which ``half_width(n)``, falling in n, is at most ``wanted``; None if beyond ``most``."""
    if half_width(most) > wanted:
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if half_width(middle) <= wanted:
            high = middle
        else:
            low = middle + 1
    return low
