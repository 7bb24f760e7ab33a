"""One group of values: its median, robust spread and an interval for its middle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import stats as sp
from scipy.special import ndtri, stdtrit


@dataclass(frozen=True)
class Interval:
    """``low`` and ``high`` hold the true value with probability ``level``; ``method`` says how that was worked out."""

    low: float
    high: float
    level: float
    method: str


def median(values: Sequence[float]) -> float:
    """Median of ``values``. Raises ValueError when there are none."""
    if len(values) == 0:
        raise ValueError("the median of no values was asked for")
    return float(np.median(np.asarray(values, dtype=float)))


def robust_spread(values: Sequence[float]) -> float:
    """Median absolute deviation scaled to a normal's standard deviation, in the unit of ``values``; 0 for one value."""
    if len(values) == 0:
        raise ValueError("the spread of no values was asked for")
    return float(sp.median_abs_deviation(np.asarray(values, dtype=float), scale="normal"))


@lru_cache(maxsize=4096)
def _order_rank(n: int, level: float) -> int:
    """Largest 1-based rank r for which [x(r), x(n+1-r)] holds the median with at least ``level``; 0 if none does."""
    tail = (1 - level) / 2
    rank = 0
    while 2 * (rank + 1) <= n and sp.binom.cdf(rank, n, 0.5) <= tail:
        rank += 1
    return rank


def median_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Interval for the median of positive ``values``: exact, from order statistics, where there are enough of them.

    For 95 % that takes 6 values. With 2 to 5 the interval is Student's t on the logarithms, which assumes that they
    are normal; with one value it is unbounded (0, inf).
    """
    n = len(values)
    if n == 0:
        raise ValueError("the interval of no values was asked for")
    ordered = sorted(values)
    rank = _order_rank(n, level)
    if rank:
        return Interval(float(ordered[rank - 1]), float(ordered[n - rank]), level, "exact")
    if n == 1:
        return Interval(0.0, math.inf, level, "one value")
    logs = np.log(np.asarray(values, dtype=float))
    half = quantile((1 + level) / 2, n - 1) * float(np.std(logs, ddof=1)) / math.sqrt(n)
    middle = float(np.mean(logs))
    return Interval(math.exp(middle - half), _exp(middle + half), level, "t")


def bootstrap_interval(values: Sequence[float], level: float = 0.95, seed: int = 0, resamples: int = 2000) -> Interval:
    """Percentile bootstrap interval of the median (``scipy.stats.bootstrap``); needs 2 values or more."""
    if len(values) < 2:
        raise ValueError(f"a bootstrap needs at least 2 values, got {len(values)}")
    result = sp.bootstrap(
        (np.asarray(values, dtype=float),),
        np.median,
        confidence_level=level,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Interval(float(result.confidence_interval.low), float(result.confidence_interval.high), level, "bootstrap")


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def quantile(p: float, df: float) -> float:
    """Student's t, or the normal's where ``df`` is inf."""
    # scipy.special's own quantiles: a tenth of the time of scipy.stats' wrappers around them.
    return float(ndtri(p)) if math.isinf(df) else float(stdtrit(df, p))
