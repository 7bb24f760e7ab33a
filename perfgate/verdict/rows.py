"""The rows of a point's table: one a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfgate.baseline.model import METRICS, MetricName
from perfgate.result import MetricResult, Outcome
from perfgate.stats import median, median_interval
from perfgate.verdict.compare import Comparison
from perfgate.verdict.words import explain
from perfgate.workload import Sample


def compared_row(one: Comparison, targets: Mapping[str, float] | None) -> MetricResult:
    metric = one.metric
    return MetricResult(
        name=metric.name,
        unit=metric.unit,
        higher_is_better=metric.sign > 0,
        value=one.value,
        low=one.interval.low,
        high=one.interval.high if math.isfinite(one.interval.high) else None,
        floor=one.floor,
        baseline=one.baseline,
        target=(targets or {}).get(metric.name),
        change=one.change,
        outcome=one.outcome,
        why=explain(one),
    )


def plain_row(
    name: MetricName,
    samples: Sequence[Sample],
    outcome: Outcome,
    why: str,
    targets: Mapping[str, float] | None,
    floor: float | None = None,
) -> MetricResult:
    """A row without a comparison: the value and its interval."""
    metric = METRICS[name]
    values = [v for v in (metric.of(s) for s in samples) if v is not None]
    interval = median_interval(values) if values else None
    return MetricResult(
        name=name,
        unit=metric.unit,
        higher_is_better=metric.sign > 0,
        value=median(values) if values else None,
        low=interval.low if interval else None,
        high=interval.high if interval and math.isfinite(interval.high) else None,
        floor=floor,
        target=(targets or {}).get(name),
        outcome=outcome,
        why=why,
    )
