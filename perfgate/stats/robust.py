"""Rank tests that a few outlying samples do not blind, beside those that ``shift`` inverts.

Mann and Whitney's test weighs every pair of samples, so two slow samples of ten in the other group hide a shift of any size:
no number of values makes up for them. These tests count only on which side of one order statistic the values fall. Exact
under no shift, whatever the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import stats as sp

ONE_IN = 5
"""One in so many of the other group's samples, its lowest, may be outlying."""


def left_out(count: int) -> int:
    """How many of ``count`` samples may be outlying."""
    return count // ONE_IN


@lru_cache(maxsize=4096)
def least_below(n: int, m: int, alpha: float) -> int | None:
    """Fewest of ``n`` values below the lowest of ``m`` others, ``left_out(m)`` of these not counted, that chance reaches
    with probability ``alpha`` at most; None where not even all of them do (precedence test; 14 and 10 for 0.0001)."""
    rank = left_out(m) + 1
    counts = np.arange(1, n + 1)
    # The count-th value comes before the rank-th other just where these first places hold at least ``count`` values.
    rare = sp.hypergeom.sf(counts - 1, n + m, n, counts + rank - 1) <= alpha
    return int(counts[rare][0]) if rare[-1] else None


@lru_cache(maxsize=4096)
def most_above(n: int, alpha: float) -> int | None:
    """Most of ``n`` differences at or above zero that chance falls to with probability ``alpha`` at most; None where not
    even none does (sign test)."""
    found = int(sp.binom.ppf(alpha, n, 0.5))
    while found >= 0 and sp.binom.cdf(found, n, 0.5) > alpha:
        found -= 1
    return found if found >= 0 else None


def below_most(values: Sequence[float], others: Sequence[float], alpha: float) -> bool:
    """Whether so many of ``values`` lie below all but a few outlying ``others`` that chance does it ``alpha`` at most."""
    least = least_below(len(values), len(others), alpha)
    return least is not None and count_below(values, others) >= least


def count_below(values: Sequence[float], others: Sequence[float]) -> int:
    """How many of ``values`` lie below the lowest of ``others`` that is not left out."""
    edge = sorted(others)[left_out(len(others))]
    return sum(v < edge for v in values)


def mostly_negative(differences: Sequence[float], alpha: float) -> bool:
    """Whether so many of the paired ``differences`` are negative that chance does it ``alpha`` at most."""
    most = most_above(len(differences), alpha)
    return most is not None and sum(d >= 0 for d in differences) <= most
