"""What the order of the samples says of a change, whatever their distribution: the guard beside the standard errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfgate.stats import Shift, below_most, count_below, least_below, median, most_above, mostly_negative, separated
from perfgate.stats.shift import critical_t, critical_u

ROBUST_SHARE = 0.25
"""Error that the test which outliers do not blind may spend beside the other's: what the levels of a run leave
(``levels.FALSE_ALARMS_A_RUN``) of one false alarm in 200."""


@dataclass(frozen=True)
class Ranks:
    """``worse`` and ``better``: whether the order tells the two sides apart that way at the level.

    What keeps it from ``worse``: ``overlap``, the share of comparisons of two samples (of pairs: of Walsh averages) that say
    otherwise, ``beside``, the share of the run's samples (or pairs) that the robust test counts so, and by value, the
    ``outlying`` samples of the baseline, no better than the run's median (or pairs, as a signed logarithm), and ``unhurt``
    of the run, no worse than the baseline's. ``paired`` says which.
    """

    worse: bool
    better: bool
    overlap: float
    beside: float
    outlying: tuple[float, ...]
    unhurt: tuple[float, ...] = ()
    paired: bool = False

    def would_tell(self, n: int, m: int, alpha: float) -> bool:
        """Whether ``n`` samples (or pairs) against ``m``, of which the same shares say otherwise, would be told apart."""
        beside = math.ceil(self.beside * n - 1e-9)
        if self.paired:
            most = most_above(n, alpha * ROBUST_SHARE)
            walsh = n * (n + 1) // 2
            return math.ceil(self.overlap * walsh - 1e-9) <= critical_t(n, alpha) or (
                most is not None and beside <= most
            )
        least = least_below(n, m, alpha * ROBUST_SHARE)
        return math.ceil(self.overlap * n * m - 1e-9) <= critical_u(n, m, alpha) or (
            least is not None and n - beside >= least
        )


def of_two(
    x: Sequence[float], y: Sequence[float], values: Sequence[float], others: Sequence[float], shift: Shift, alpha: float
) -> Ranks:
    """Ranks of a run against a baseline: signed logarithms ``x`` and ``y`` of ``values`` and ``others``."""
    middle, usual = median(x), median(y)
    return Ranks(
        worse=_tells(shift.high_at_alpha, separated(x, y)) or (shift.exact and below_most(x, y, alpha * ROBUST_SHARE)),
        better=_tells(_minus(shift.low_at_alpha), separated(y, x))
        or (shift.exact and below_most(_mirrored(x), _mirrored(y), alpha * ROBUST_SHARE)),
        overlap=float(np.mean(np.subtract.outer(np.asarray(x), np.asarray(y)) >= 0)),
        beside=1 - count_below(x, y) / len(x),
        outlying=tuple(value for log, value in zip(y, others, strict=True) if log <= middle),
        unhurt=tuple(value for log, value in zip(x, values, strict=True) if log >= usual),
    )


def of_pairs(d: Sequence[float], shift: Shift, alpha: float) -> Ranks:
    """Ranks of the signed logarithms ``d`` of the ratio within each pair."""
    logs = np.asarray(d)
    rows, columns = np.triu_indices(len(logs))
    return Ranks(
        worse=_tells(shift.high_at_alpha, max(d) < 0) or (shift.exact and mostly_negative(d, alpha * ROBUST_SHARE)),
        better=_tells(_minus(shift.low_at_alpha), min(d) > 0)
        or (shift.exact and mostly_negative(_mirrored(d), alpha * ROBUST_SHARE)),
        overlap=float(np.mean(logs[rows] + logs[columns] >= 0)),
        beside=float(np.mean(logs >= 0)),
        outlying=tuple(v for v in d if v >= 0),
        paired=True,
    )


def _tells(end: float | None, apart: bool) -> bool:
    """By the end of the interval at the level, or where so few samples have none, by all of them being apart."""
    return apart if end is None else end < 0


def _minus(end: float | None) -> float | None:
    return None if end is None else -end


def _mirrored(logs: Sequence[float]) -> list[float]:
    return [-v for v in logs]
