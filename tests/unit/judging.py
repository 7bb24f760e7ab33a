"""Samples and baselines for the tests of the judge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfgate.baseline import Baseline, Bounds, MetricBaseline, Recorded, record
from perfgate.stats import median, robust_spread
from perfgate.workload import Sample


def sample(throughput: float = 1000.0, concurrency: int = 16, **changes: Any) -> Sample:
    """A valid sample whose step time follows from its throughput, unless ``changes`` say otherwise."""
    fields: dict[str, Any] = {
        "max_concurrency": concurrency,
        "completed": 5 * concurrency,
        "duration_s": 5.0,
        "total_input_tokens": 100,
        "total_output_tokens": 100,
        "output_throughput": throughput,
        "median_tpot_ms": 0.8 * 1000 * concurrency / throughput if throughput else 0.0,
    }
    return Sample(**{**fields, **changes})


def samples(values: Sequence[float], concurrency: int = 16, **changes: Any) -> list[Sample]:
    return [sample(float(v), concurrency, **changes) for v in values]


def baseline(
    values: Sequence[float],
    concurrency: int = 16,
    starts: Sequence[int] | None = None,
    bounds: Bounds | None = None,
    **fields: Any,
) -> Baseline:
    starts = tuple(starts) if starts is not None else (0,) * len(values)
    steps = [0.8 * 1000 * concurrency / v for v in values]
    metrics = {
        name: MetricBaseline(tuple(float(v) for v in figures), starts, median(figures), robust_spread(figures))
        for name, figures in (("throughput", values), ("step_time", steps))
    }
    known = {"recorded_at": "2026-11-29", "commit": "abc123", **fields}
    return Baseline(concurrency, metrics, bounds=bounds or Bounds(), **known)


def noise(count: int, width: float = 0.005, level: float = 1000.0, seed: int = 0) -> list[float]:
    return (level * np.exp(np.random.default_rng(seed).normal(0, width, count))).tolist()


def record_first(path: Path, **changes: Any) -> Recorded:
    """Record one point, C=16 at 1000 tok/s, or what ``changes`` say instead."""
    options: dict[str, Any] = {
        "recipe": "cpu-tiny",
        "hardware": "xeon",
        "points": {16: samples([1000, 1010, 990], server_start=3)},
        "fingerprint": {"cpu": "xeon"},
        "recorded_at": "2026-11-29",
        "commit": "abc",
        "reason": "first",
        "sglang_version": "0.5.15.post1",
        "server_arguments": {"device": "cpu"},
    }
    return record(path, **{**options, **changes})
