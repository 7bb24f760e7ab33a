"""Medians, intervals, spreads and effect sizes. Distributions and intervals are scipy's; no server is known here."""

from perfgate.stats.describe import Interval, bootstrap_interval, median, median_interval, quantile, robust_spread
from perfgate.stats.robust import below_most, count_below, least_below, most_above, mostly_negative
from perfgate.stats.shift import (
    Shift,
    cliffs_delta,
    paired_shift,
    separated,
    two_sample_shift,
)
from perfgate.stats.variance import (
    NOTHING,
    Observed,
    Spread,
    between_start_weight,
    between_starts,
    fewest,
    moderated_spread,
    pooled_sd,
    seen_spread,
)

__all__ = [
    "NOTHING",
    "Interval",
    "Observed",
    "Shift",
    "Spread",
    "below_most",
    "between_start_weight",
    "between_starts",
    "bootstrap_interval",
    "cliffs_delta",
    "count_below",
    "fewest",
    "least_below",
    "median",
    "median_interval",
    "moderated_spread",
    "most_above",
    "mostly_negative",
    "paired_shift",
    "pooled_sd",
    "quantile",
    "robust_spread",
    "seen_spread",
    "separated",
    "two_sample_shift",
]
