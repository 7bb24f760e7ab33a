"""How much error each look at the data may spend, so that a whole run cries wolf at most once in 200."""

from __future__ import annotations

from dataclasses import dataclass

FALSE_ALARMS_A_RUN = 0.004
"""Chance of a false REGRESSION in a whole run of unchanged code that the levels are set for (promised: 0.005). The rest is
left to the test of the order that outliers do not blind (``ranks.ROBUST_SHARE``)."""

MISSED = 0.05
"""Chance, in all, that PASS excludes a drop of the recipe's relative bound although it is there."""

COMPARISONS = 14
"""Metrics times points assumed where the caller does not say: seven concurrencies, throughput and step time."""


@dataclass(frozen=True)
class Levels:
    """One-sided error of one test at one look: ``alarm`` for REGRESSION or IMPROVED, ``miss`` for PASS."""

    alarm: float
    miss: float


def levels(
    count: int, minimum: int | None = None, maximum: int | None = None, comparisons: int = COMPARISONS
) -> Levels:
    """Levels for a look at ``count`` samples out of a plan that looks at ``minimum`` to ``maximum`` of them.

    Looking again after each sample and stopping at the first clear answer would multiply the error by the number of
    looks. So the looks before the last share half of it equally and the last has the other half (Bonferroni, which
    holds whatever the dependence between looks, metrics and points). Without a ``maximum`` there is one look.
    """
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, got {comparisons}")
    alarm, miss = FALSE_ALARMS_A_RUN / comparisons, MISSED / 2
    if maximum is None or maximum <= (minimum or 1):
        return Levels(alarm, miss)
    early = maximum - (minimum or 1)
    share = 0.5 if count >= maximum else 0.5 / early
    return Levels(alarm * share, 2 * miss * share)
