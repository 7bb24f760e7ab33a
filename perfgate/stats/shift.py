"""How far one group of values lies from another, with an exact interval that assumes no distribution.

The estimate is Hodges and Lehmann's (median of all pairwise differences), the interval comes from inverting the
Mann-Whitney test (two groups) or Wilcoxon's signed-rank test (pairs): Hollander, Wolfe and Chicken, Nonparametric
Statistical Methods, 3rd ed., sections 3.3 and 4.3. The tests' exact null distributions are scipy's; beyond sizes for which
they take seconds it is the normal approximation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats as sp
from scipy.special import ndtri

from perfgate.stats.describe import quantile

Z95 = 1.959963984540054

EXACT_PRODUCT = 10_000
EXACT_PAIRS = 200
"""Samples of one side times the other's, and pairs, up to which the exact distribution takes milliseconds (200 and 200 samples
take half a minute). Beyond, the normal one has the say: it asks for a little more, never for less."""


@dataclass(frozen=True)
class Shift:
    """A difference of two groups. ``low``/``high`` are its 95 % ends; ``high_at_alpha`` and ``low_at_alpha`` the ends
    at the one-sided level that was asked for (None where that many samples cannot reach the level by ranks alone).

    ``se`` is the standard error, ``df`` its degrees of freedom (inf for the exact method, whose interval needs none).
    """

    estimate: float
    low: float
    high: float
    se: float
    df: float
    method: str
    low_at_alpha: float | None
    high_at_alpha: float | None

    @property
    def exact(self) -> bool:
        """True where ranks alone can reach the level asked for."""
        return self.low_at_alpha is not None


def _largest(count: int, tail: float, p_value: object) -> int:
    """Largest statistic in [0, count] whose lower-tail probability is at most ``tail``; -1 when none is."""
    assert callable(p_value)
    low, high = -1, count
    while low < high:
        middle = (low + high + 1) // 2
        if p_value(middle) <= tail:
            low = middle
        else:
            high = middle - 1
    return low


def _normal(mean: float, variance: float, tail: float) -> int:
    """As the exact one, by the normal distribution with continuity correction. Ties make the true variance smaller, so leaving
    them out asks for more."""
    return max(-1, math.floor(mean + float(ndtri(tail)) * math.sqrt(variance) - 0.5))


@lru_cache(maxsize=4096)
def critical_u(n: int, m: int, tail: float) -> int:
    """Largest Mann-Whitney statistic of ``n`` and ``m`` samples that chance falls to with probability ``tail`` at most; -1
    where none is."""
    if n * m > EXACT_PRODUCT:
        return _normal(n * m / 2, n * m * (n + m + 1) / 12, tail)
    if math.comb(n + m, n) < 1 / tail:
        return -1
    others = np.arange(1, m + 1, dtype=float)

    def p_value(u: int) -> float:
        # Any arrangement with this U has the same probability, so one is made: whole rows first, then the rest.
        full, rest = divmod(u, m)
        ranks = [m + 0.5] * full + ([rest + 0.5] if full < n else [])
        values = np.array((ranks + [0.5] * n)[:n]) + np.linspace(0, 0.1, n)
        return float(sp.mannwhitneyu(values, others, alternative="less", method="exact").pvalue)

    return _largest(n * m // 2, tail, p_value)


@lru_cache(maxsize=4096)
def critical_t(n: int, tail: float) -> int:
    """Largest signed-rank statistic of ``n`` pairs that chance falls to with probability ``tail`` at most; -1 where none
    is."""
    if n > EXACT_PAIRS:
        return _normal(n * (n + 1) / 4, n * (n + 1) * (2 * n + 1) / 24, tail)
    if 2.0**n * tail < 1:
        return -1

    def p_value(t: int) -> float:
        signs, left = -np.arange(1, n + 1, dtype=float), t
        for rank in range(n, 0, -1):
            if rank <= left:
                signs[rank - 1] = rank
                left -= rank
        return float(sp.wilcoxon(signs, alternative="less", method="exact").pvalue)

    return _largest(n * (n + 1) // 4, tail, p_value)


def _ends(ordered: NDArray[np.float64], critical: int) -> tuple[float, float] | None:
    if critical < 0:
        return None
    return float(ordered[critical]), float(ordered[len(ordered) - 1 - critical])


def _build(ordered: NDArray[np.float64], at_95: int, at_alpha: int, mean: float, se: float, df: float) -> Shift:
    wide, tight = _ends(ordered, at_alpha), _ends(ordered, at_95)
    if wide is None or tight is None:
        half = math.inf if df < 1 else quantile(0.975, df) * se
        return Shift(mean, mean - half, mean + half, se, df, "t", None, None)
    estimate = float(np.median(ordered))
    return Shift(estimate, *tight, (tight[1] - tight[0]) / (2 * Z95), math.inf, "exact", *wide)


def two_sample_shift(values: Sequence[float], others: Sequence[float], alpha: float) -> Shift:
    """Shift of ``values`` from ``others`` (independent groups); ``alpha`` is the one-sided level of the outer ends.

    With too few samples for the level (7 a side for 0.0003) it falls back on the pooled Student's t, and says so.
    """
    x, y = np.asarray(values, dtype=float), np.asarray(others, dtype=float)
    if len(x) == 0 or len(y) == 0:
        raise ValueError("a shift needs values on both sides")
    n, m = len(x), len(y)
    df = n + m - 2
    squares = float(np.sum((x - x.mean()) ** 2) + np.sum((y - y.mean()) ** 2))
    se = math.sqrt(squares / df * (1 / n + 1 / m)) if df > 0 else math.inf
    ordered = np.sort(np.subtract.outer(x, y).ravel())
    at_alpha = critical_u(n, m, alpha)
    at_95 = critical_u(n, m, 0.025) if at_alpha >= 0 else -1
    return _build(ordered, at_95, at_alpha, float(x.mean() - y.mean()), se, float(df))


def paired_shift(differences: Sequence[float], alpha: float) -> Shift:
    """Shift of paired ``differences`` from zero; ``alpha`` as above (ranks reach 0.0003 with 12 pairs)."""
    d = np.asarray(differences, dtype=float)
    if len(d) == 0:
        raise ValueError("a paired shift needs at least one pair")
    n = len(d)
    se = float(np.std(d, ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    rows, columns = np.triu_indices(n)
    ordered = np.sort((d[rows] + d[columns]) / 2)
    at_alpha = critical_t(n, alpha)
    at_95 = critical_t(n, 0.025) if at_alpha >= 0 else -1
    return _build(ordered, at_95, at_alpha, float(d.mean()), se, float(n - 1))


def separated(values: Sequence[float], others: Sequence[float]) -> bool:
    """True where every one of ``values`` is below every one of ``others``: all that ranks can say with few samples."""
    return max(values) < min(others)


def cliffs_delta(values: Sequence[float], others: Sequence[float]) -> float:
    """Effect size in [-1, 1]: how much oftener a value is above one of ``others`` than below."""
    signs = np.sign(np.subtract.outer(np.asarray(values, dtype=float), np.asarray(others, dtype=float)))
    return float(signs.mean())
