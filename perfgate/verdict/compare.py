"""One metric of one point against its baseline.

Everything is done on logarithms, signed so that more is better, so a change is a ratio and both metrics read alike.

Model: log value = level + start effect + sample noise. The start effects of two launches of one server differ by a
standard deviation that no number of samples from one launch on each side can show, so the recipe's figure stands in,
and the samples' own is mixed in as soon as a side has two starts (``stats.moderated_spread``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from perfgate.baseline.floor import shares
from perfgate.baseline.model import Bounds, Metric, MetricBaseline
from perfgate.result import Outcome
from perfgate.stats import (
    NOTHING,
    Interval,
    Observed,
    Shift,
    between_start_weight,
    median,
    median_interval,
    moderated_spread,
    quantile,
    robust_spread,
    two_sample_shift,
)
from perfgate.stats.variance import Side
from perfgate.verdict.levels import Levels
from perfgate.verdict.ranks import Ranks, of_two

FEW = 3
ASSUMED_NOISE = 0.05
ASSUMED_DF = 4.0
"""With fewer than ``FEW`` samples on a side their spread is a guess: at least 5 %, known to 4 degrees of freedom."""

STANDARD_ERRORS = 3.0


@dataclass(frozen=True)
class Comparison:
    """One metric compared. ``change`` is value/baseline - 1 with interval ``change_low``..``change_high`` (95 %).

    ``drop`` and the rest are on signed logarithms: ``drop`` is positive where the run is worse, ``bound`` the drop that
    matters, ``question`` the drop that PASS excludes, ``noise`` k standard errors ``se_alarm``, ``k`` at least 3: ``se``, and
    what starts may differ by that neither the recipe states nor a side shows. ``robust`` is the
    drop of the medians and the deviation of one sample from absolute deviations, which outliers hardly move.
    """

    metric: Metric
    value: float
    interval: Interval
    baseline: float
    floor: float
    change: float
    change_low: float
    change_high: float
    drop: float
    drop_high: float
    bound: float
    question: float
    se: float
    se_between: float
    se_alarm: float
    df_between: float
    k: float
    df: float
    method: str
    outcome: Outcome
    ranks: Ranks
    level: Levels
    robust: tuple[float, float]
    note: str = ""

    @property
    def noise(self) -> float:
        """The drop that noise alone explains."""
        return self.k * self.se_alarm

    @property
    def between_alarm(self) -> float:
        """The part of ``se_alarm`` that lies between starts."""
        return math.sqrt(max(0.0, self.se_alarm**2 - self.se**2 + self.se_between**2))

    @property
    def only_order_missing(self) -> bool:
        """True where all speaks for a regression but the order of the samples: a few of them say otherwise."""
        under = self.interval.high < self.floor if self.metric.sign > 0 else self.interval.low > self.floor
        return under and self.drop > max(self.bound, self.noise) and not self.ranks.worse


def compare(
    metric: Metric,
    values: Sequence[float],
    starts: Sequence[int],
    base: MetricBaseline,
    bounds: Bounds,
    level: Levels,
    elsewhere: Observed = NOTHING,
) -> Comparison:
    """Compare ``values`` (in the metric's unit, with the server start of each) with a recorded point.

    ``elsewhere``: the spread between starts that the run's other points show in this metric.
    """
    x, y = logs(metric, values), logs(metric, base.samples)
    noise, launches = base.spread / base.median, len(set(base.starts))
    size, question_size = shares(metric, bounds, base.median, noise, len(base.samples), launches)
    shift = two_sample_shift(x, y, level.alarm)
    if min(len(x), len(y)) < FEW:
        shift = guarded(shift, len(x), len(y))
    spread = moderated_spread(sides(metric, values, starts, base), bounds.between_start, elsewhere, bounds.expected)
    weight = math.sqrt(between_start_weight(starts) + between_start_weight(base.starts))
    return weigh(
        metric,
        value=median(values),
        own=_own_interval(values),
        baseline=base.median,
        size=size,
        question_size=question_size,
        shift=shift,
        se_between=spread.between * weight,
        se_unseen=bounds.unstated * weight if math.isinf(spread.df) else 0.0,
        df_between=spread.df,
        ranks=of_two(x, y, values, base.samples, shift, level.alarm),
        robust=(median(y) - median(x), _pooled(x, y)),
        level=level,
    )


def logs(metric: Metric, values: Sequence[float]) -> list[float]:
    """Logarithms of ``values``, signed so that more is better."""
    found: list[float] = (metric.sign * np.log(np.asarray(values, dtype=float))).tolist()
    return found


def sides(metric: Metric, values: Sequence[float], starts: Sequence[int], base: MetricBaseline) -> tuple[Side, Side]:
    """Both sides of a comparison for an analysis of starts, on logarithms."""
    return (logs(metric, values), starts), (logs(metric, base.samples), base.starts)


def weigh(
    metric: Metric,
    *,
    value: float,
    own: Interval,
    baseline: float,
    size: float,
    question_size: float,
    shift: Shift,
    se_between: float,
    se_unseen: float,
    df_between: float,
    ranks: Ranks,
    robust: tuple[float, float],
    level: Levels,
) -> Comparison:
    """The decision itself, the same for a stored baseline and for A/B pairs.

    REGRESSION asks for all of: the interval of the value beyond the floor; a drop larger than the bound and than k
    standard errors of the difference; an order of the samples that is unlikely at the level (``ranks``; or all of them
    apart, where there are too few for the level). IMPROVED is its mirror. PASS asks that the value keeps the floor and that the
    interval of the difference excludes a drop of the question's size.

    ``se_unseen``: an error between starts that nothing states or shows. A change has to exceed it too; PASS does not allow for
    it, or one start against one could never pass.
    """
    sign = metric.sign
    floor = baseline * (1 - sign * size)
    bound, question = (abs(math.log1p(-sign * share)) for share in (size, question_size))
    between = max(se_between, se_unseen)
    se, se_alarm = math.hypot(shift.se, se_between), math.hypot(shift.se, between)
    df = _welch_df(shift, between, df_between)
    k = max(STANDARD_ERRORS, quantile(1 - level.alarm, df))
    low = shift.estimate - math.hypot(_reach(shift, level.miss), quantile(1 - level.miss, df_between) * se_between)
    low95 = shift.estimate - math.hypot(shift.estimate - shift.low, quantile(0.975, df_between) * se_between)
    high95 = shift.estimate + math.hypot(shift.high - shift.estimate, quantile(0.975, df_between) * se_between)
    ceiling = baseline * (1 + sign * size)
    under = own.high < floor if sign > 0 else own.low > floor
    over = own.low > ceiling if sign > 0 else own.high < ceiling
    beyond = max(bound, k * se_alarm)
    if under and ranks.worse and -shift.estimate > beyond:
        outcome = Outcome.REGRESSION
    elif over and ranks.better and shift.estimate > beyond:
        outcome = Outcome.IMPROVED
    elif sign * (value - floor) >= 0 and low > -question:
        outcome = Outcome.PASS
    else:
        outcome = Outcome.INCONCLUSIVE
    ends = sorted((_ratio(sign * low95), _ratio(sign * high95)))
    return Comparison(
        metric=metric,
        value=value,
        interval=own,
        baseline=baseline,
        floor=floor,
        change=value / baseline - 1,
        change_low=ends[0],
        change_high=ends[1],
        drop=-shift.estimate,
        drop_high=-low,
        bound=bound,
        question=question,
        se=se,
        se_between=se_between,
        se_alarm=se_alarm,
        df_between=df_between,
        k=k,
        df=df,
        method=shift.method,
        outcome=outcome,
        ranks=ranks,
        level=level,
        robust=robust,
    )


def _pooled(x: Sequence[float], y: Sequence[float]) -> float:
    n, m = len(x), len(y)
    return math.sqrt((n * robust_spread(x) ** 2 + m * robust_spread(y) ** 2) / (n + m))


def guarded(shift: Shift, n: int, m: int) -> Shift:
    """The shift with at least the assumed noise, for sides of ``n`` and ``m`` samples, one of them below FEW."""
    least = ASSUMED_NOISE * math.sqrt(1 / n + 1 / m)
    se = max(least, shift.se) if math.isfinite(shift.se) else least
    df = min(shift.df, ASSUMED_DF) if shift.df >= 1 and shift.se > least else ASSUMED_DF
    half = quantile(0.975, df) * se
    return Shift(shift.estimate, shift.estimate - half, shift.estimate + half, se, df, "few", None, None)


def _own_interval(values: Sequence[float]) -> Interval:
    if len(values) >= FEW:
        return median_interval(values)
    half = quantile(0.975, ASSUMED_DF) * ASSUMED_NOISE / math.sqrt(len(values))
    middle = median(values)
    return Interval(
        min(*values, middle * math.exp(-half)), max(*values, middle * math.exp(half)), 0.95, "assumed noise"
    )


def _reach(shift: Shift, tail: float) -> float:
    """How far the lower end of the shift's own interval lies below the estimate at one-sided level ``tail``."""
    if shift.exact:
        # Scaling the exact 95 % end keeps one interval a comparison; at the last look (tail 0.025) the factor is 1.
        return (shift.estimate - shift.low) * float(ndtri(1 - tail) / ndtri(0.975))
    return quantile(1 - tail, shift.df) * shift.se


def _welch_df(shift: Shift, se_between: float, df_between: float) -> float:
    if math.isfinite(df_between):
        # A start spread that comes out small by chance must not buy degrees of freedom: its own few are what count.
        return min(df_between, shift.df)
    parts = sum(s**4 / df for s, df in ((shift.se, shift.df), (se_between, df_between)) if 0 < df < math.inf)
    total = (shift.se**2 + se_between**2) ** 2
    return math.inf if parts == 0 or not math.isfinite(total) else total / parts


def _ratio(log: float) -> float:
    return math.expm1(min(log, 700.0))
