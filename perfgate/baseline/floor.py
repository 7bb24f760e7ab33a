"""Where the floor lies: the least that passes beside a baseline (pure)."""

from __future__ import annotations

from perfgate.baseline.model import Bounds, Metric

NOISE_WIDTHS = 1.25
"""The floor lies this many deviations of one sample below the baseline, between the least and relative bound."""

KNOWN_FROM = 5
"""Baseline samples from which its own spread may draw the floor closer than the relative bound."""


def shares(
    metric: Metric, bounds: Bounds, baseline: float, noise: float, count: int, launches: int = 1
) -> tuple[float, float]:
    """Shares of the baseline: the drop that matters (where the floor lies) and the drop that PASS has to exclude.

    ``noise`` is the relative spread of one baseline sample, ``count`` how many samples it rests on, of how many ``launches``
    of the server: one does not show all of it, and then draws no floor closer unless the recipe states the rest.
    """
    absolute = bounds.absolute.get(metric.name, 0.0) / baseline
    known = count >= KNOWN_FROM and (launches > 1 or not bounds.unstated)
    close = min(bounds.relative, max(bounds.least, NOISE_WIDTHS * noise)) if known else bounds.relative
    # Below 1, or a floor of zero or less would pass anything.
    return min(0.99, max(close, absolute)), min(0.99, max(bounds.relative, absolute))


def floor_of(metric: Metric, bounds: Bounds, baseline: float, noise: float, count: int) -> float:
    """The floor (more is better) or ceiling, in the metric's unit; parameters as for ``shares``."""
    return baseline * (1 - metric.sign * shares(metric, bounds, baseline, noise, count)[0])
