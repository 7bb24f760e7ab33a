"""With what chance another run of so many samples, or server starts, would decide a metric (pure).

The change seen now is known to its own error, and a fresh run sees it with another: what that run will show is normal around
today's change with both errors together (predictive power: Spiegelhalter, Freedman and Blackburn 1986, Controlled
Clinical Trials 7:8-17).
It decides where that falls low enough for PASS or high enough for REGRESSION. Where today's change may be none, unchanged code
has to pass as often.
"""

from __future__ import annotations

import math

from scipy.special import ndtr

from perfgate.stats import quantile
from perfgate.stats.shift import Z95
from perfgate.verdict.compare import STANDARD_ERRORS, Comparison

MEDIAN_EFFICIENCY = math.sqrt(math.pi / 2)
"""How much wider a normal sample's interval for the median is than the one for its mean."""


POSSIBLE = 2.0
"""Standard errors up to which today's loss may be none at all."""

FEW_TO_RANK = 10
"""Samples of a side below which the 95 % interval reaches into a fifth that is outlying."""

OUTLIERS = 1.5
"""A standard deviation so many times the robust one is made by outliers; smaller ratios are chance with few samples."""


def chance_of_samples(
    c: Comparison, n: int, m: int, count: int, others: int | None = None, paired: bool = False
) -> float:
    """Of ``count`` samples on one start, after ``n`` against ``m`` now: against the same baseline, or against ``others`` taken
    anew. Of as many pairs where ``paired``."""
    drop, width = _typical(c, n, m)
    error = width * math.sqrt(1 / count + 1 / (others or m))
    apart = width * math.sqrt(1 / n + 1 / count + (1 / m + 1 / others if others else 0.0))
    starts = c.se_between * (math.sqrt(2) if others else 1.0)
    own = Z95 * (error if paired else MEDIAN_EFFICIENCY * width / math.sqrt(count))
    now = math.hypot(width * math.sqrt(1 / n + 1 / m), c.se_between)
    return _decided(c, drop, now, error, c.se_between, c.between_alarm, c.df_between, own, math.hypot(apart, starts))


def chance_of_starts(c: Comparison, starts: int, launches: int, quiet: bool = False) -> float:
    """Of ``starts`` on each side that take turns, after ``launches`` now. ``quiet``: noise within a start is left out.

    Where nothing states or shows the spread between starts, a loss is expected to meet as much as an alarm allows for.
    """
    between = c.between_alarm if c.drop > c.bound else c.se_between
    se = between if quiet else math.sqrt(max(0.0, c.se**2 - c.se_between**2) + between**2)
    error = se * math.sqrt(launches / starts)
    # One start each is as well known as it is now; several show their spread themselves.
    df = c.df_between * (starts - 1) / (launches - 1) if launches > 1 else float(starts - 1) or c.df_between
    # The value's own interval is that of the pairs, which start effects do not widen.
    own = 0.0 if quiet else Z95 * math.sqrt(max(0.0, c.se**2 - c.se_between**2) * launches / starts)
    return _decided(c, c.drop, se, 0.0, error, error, df, own, math.hypot(se, error))


def _typical(c: Comparison, n: int, m: int) -> tuple[float, float]:
    """The drop, and the relative standard deviation of one sample.

    With few samples an interval takes outliers for noise that the ranks of more samples pass over: where the robust figures
    show that, they stand in.
    """
    width = math.sqrt(max(0.0, c.se**2 - c.se_between**2) / (1 / n + 1 / m))
    drop, robust = c.robust[0], OUTLIERS * c.robust[1]
    few = c.method == "t" or min(n, m) < FEW_TO_RANK
    return (drop, robust) if few and 0 < robust < width else (c.drop, width)


def _decided(
    c: Comparison,
    drop: float,
    now: float,
    error: float,
    between: float,
    alarm: float,
    df: float,
    own: float,
    apart: float,
) -> float:
    """Chance that a drop seen with the deviation ``apart`` around today's ``drop``, itself known to ``now``, decides, where
    ``error`` is its standard error within starts, ``between`` that between them, known to ``df``, or what an ``alarm`` allows
    for, and ``own`` half of the
    value's own interval."""
    reach = math.hypot(quantile(1 - c.level.miss, math.inf) * error, quantile(1 - c.level.miss, df) * between)
    k = max(STANDARD_ERRORS, quantile(1 - c.level.alarm, df))
    passes = min(c.bound, c.question - reach)
    fails = max(c.bound + own, k * math.hypot(error, alarm))
    if apart == 0:
        return float(drop < passes or drop > fails)
    chance = float(ndtr((passes - drop) / apart) + ndtr((drop - fails) / apart))
    if drop > POSSIBLE * now:
        return chance
    # Today's error may leave room for any loss, most of which would be found at once. Most code is unchanged.
    return min(chance, float(ndtr(passes / math.hypot(error, between))))
