"""What single runs cannot show: slow drift and change points over a point's history, and when to tighten a baseline.

Change points are found by ruptures (PELT, Killick 2012, doi:10.1080/01621459.2012.737745), the trend by scipy
(Theil-Sen with Kendall's test). Nothing here moves a baseline: it only says what a person might record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats as sp
from scipy.ndimage import median_filter
from scipy.special import ndtri

from perfgate.baseline.against import against
from perfgate.baseline.differences import incomparable
from perfgate.baseline.file import BaselineFile
from perfgate.baseline.model import METRICS, Baseline, MetricName
from perfgate.stats import median

SHORTEST = 8
"""Runs below which a history says nothing."""

SEGMENT = 3
"""Fewest runs that make a new level: one or two are an outlier."""

CLIP = 3.0
PENALTY = 6.0
"""Times log(runs): what a change point has to explain, in squared noise. Set by simulation: see docs/evaluation.md."""

LEAST_CHANGE = 0.005
DRIFT_P = 0.001
RECENT = 5


@dataclass(frozen=True)
class ChangePoint:
    """A new level from run ``index`` on; ``change`` is after/before - 1 of the medians on either side."""

    index: int
    before: float
    after: float
    change: float


@dataclass(frozen=True)
class Drift:
    """A trend over the whole history: ``total`` is last/first - 1 along the Theil-Sen line, ``p`` Kendall's."""

    total: float
    p: float
    runs: int


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """Levels of a series of run medians, oldest first (positive, any unit). A single fast or slow run makes none.

    Raises ImportError naming ruptures where it is not installed.
    """
    if len(values) < SHORTEST:
        return []
    logs = np.log(np.asarray(values, dtype=float))
    noise = _noise(logs)
    if noise == 0.0:
        noise = LEAST_CHANGE / 4
    # A lone outlier is cut back to where it weighs less than a change point has to.
    middle = median_filter(logs, size=5, mode="nearest")
    clipped = np.clip(logs, middle - CLIP * noise, middle + CLIP * noise)
    breaks = [0, *_pelt(clipped / noise, PENALTY * math.log(len(values)))]
    found: list[ChangePoint] = []
    for i in range(1, len(breaks) - 1):
        before = median(values[breaks[i - 1] : breaks[i]])
        after = median(values[breaks[i] : breaks[i + 1]])
        if abs(after / before - 1) >= LEAST_CHANGE:
            found.append(ChangePoint(breaks[i], before, after, after / before - 1))
    return found


def slow_drift(values: Sequence[float]) -> Drift | None:
    """The trend of a series of run medians, or None where there is none beyond noise and LEAST_CHANGE."""
    if len(values) < SHORTEST:
        return None
    logs = np.log(np.asarray(values, dtype=float))
    if np.ptp(logs) == 0:
        return None
    p = float(sp.kendalltau(np.arange(len(logs)), logs).pvalue)
    slope = float(sp.theilslopes(logs).slope)
    total = math.expm1(slope * (len(logs) - 1))
    return Drift(total, p, len(logs)) if p < DRIFT_P and abs(total) >= LEAST_CHANGE else None


def series(file: BaselineFile, concurrency: int, metric: MetricName = "throughput") -> list[float]:
    """A point's history of one metric, oldest first; runs that did not report it are left out."""
    point = file.stored_point(concurrency)
    rows = point.history if point is not None else []
    return [value for value in (getattr(row, metric) for row in rows) if value is not None]


def proposal(values: Sequence[float], baseline: Baseline, metric: MetricName) -> float | None:
    """A better value that a person may record: the median of the last ``RECENT`` runs if it beats the baseline.

    It has to beat it by the relative bound, which takes most of those runs, so one fast run is never taken for a new
    level; and nothing is ever adopted from here: recording is ``baseline.record``.
    """
    base = baseline.metrics.get(metric)
    if base is None or len(values) < RECENT:
        return None
    level = median(values[-RECENT:])
    gain = METRICS[metric].sign * (level / base.median - 1)
    return level if gain > baseline.bounds.relative else None


@dataclass(frozen=True)
class Orphan:
    """A baseline that the present machine cannot be compared with any more, and what to do."""

    concurrency: int
    differences: tuple[str, ...]
    advice: str


def orphans(file: BaselineFile, fingerprint: Mapping[str, Any]) -> list[Orphan]:
    """Points of ``file`` whose fingerprint differs from ``fingerprint``: a driver or library change orphans them."""
    found: list[Orphan] = []
    for concurrency in file.concurrencies:
        point = file.stored_point(concurrency)
        if point is None:
            continue
        apart = incomparable(point.provenance.fingerprint, fingerprint, concurrency)
        if apart:
            old = point.provenance.commit
            how, note = against(old)
            advice = (
                f"run the present state and the recorded one side by side on this machine ({how}); if they agree, "
                f"record anew: --record --reason 'new fingerprint, A/B against {old or 'the old state'} agreed'"
            )
            found.append(Orphan(concurrency, tuple(apart), f"{advice}; {note}" if note else advice))
    return found


def _noise(logs: NDArray[np.float64]) -> float:
    # First differences leave levels and drift out; the difference of two runs has twice one run's variance. The upper
    # quantile, not the median: where runs fall in one of two modes, half of the differences are next to nothing.
    upper = float(np.quantile(np.abs(np.diff(logs)), 0.8))
    return upper / (math.sqrt(2) * float(ndtri(0.9)))


def _pelt(signal: NDArray[np.float64], penalty: float) -> list[int]:
    try:
        import ruptures
    except ImportError as error:
        raise ImportError("change points need ruptures: pip install ruptures") from error
    found = ruptures.Pelt(model="l2", min_size=SEGMENT, jump=1).fit(signal.reshape(-1, 1)).predict(pen=penalty)
    return [int(index) for index in found]
