"""Synthetic measurements whose truth is known, turned into real Samples and Baselines and judged by the real judge.

A noise width is the standard deviation of one sample, all causes together. Values are relative step times around 1; the
throughput of a sample moves against its step time, with an eighth of the noise of its own, as prefill makes it do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfgate.baseline import Baseline, Bounds, MetricBaseline
from perfgate.result import Outcome
from perfgate.stats import median, robust_spread
from perfgate.verdict import Verdict, judge, next_step, run_verdict, starts_elsewhere
from perfgate.workload import Sample

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Array]

LOOKED_AT = 16
"""The point whose losses are looked for; where there is none, all points are."""

STEP_MS = {1: 1.68, 2: 1.75, 4: 1.9, 8: 2.1, 16: 2.39, 32: 2.8, 64: 3.55}
"""Step times of the small model with the real shapes on one H200 (those between 1, 16 and 64 interpolated)."""


def gaussian(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n)


def skewed(rng: np.random.Generator, n: int) -> Array:
    """Log-normal with shape 0.75 (skewness 3.3): mostly fast, with a slow tail, as step times have. Unit deviation."""
    shape = 0.75
    draw = rng.lognormal(0.0, shape, n)
    mean, var = np.exp(shape**2 / 2), (np.exp(shape**2) - 1) * np.exp(shape**2)
    return (draw - mean) / np.sqrt(var)


def bimodal(rng: np.random.Generator, n: int) -> Array:
    """22.5 or 25.5 ms with 0.05 ms in a mode, in units of its own deviation (1.5 ms, 6.25 %)."""
    return (rng.choice([-1.5, 1.5], n) + rng.normal(0, 0.05, n)) / 1.5


def drifting(rng: np.random.Generator, n: int) -> Array:
    """A straight drift over the run of up to two widths either way, under gaussian noise."""
    return rng.standard_normal(n) * 0.8 + rng.uniform(-1, 1) * 2 * (np.arange(n) / max(1, n - 1) - 0.5)


def one_fast(rng: np.random.Generator, n: int) -> Array:
    """Gaussian, with one sample 60 widths fast (100, 100, 30, 100 at 1 % noise is 70)."""
    values = rng.standard_normal(n)
    values[rng.integers(n)] -= 60
    return values


@dataclass(frozen=True)
class Shape:
    """A kind of noise. ``width``: relative deviation of one sample; None where the kind has one of its own."""

    name: str
    noise: Noise
    width: float | None = None


SHAPES = (
    Shape("gaussian", gaussian),
    Shape("skewed", skewed),
    Shape("bimodal 22.5/25.5 ms", bimodal, 0.0625),
    Shape("drifting", drifting),
    Shape("one fast outlier", one_fast),
)


@dataclass(frozen=True)
class Plan:
    """How much is measured: baseline samples and starts, and the sequential plan of the run and its starts.

    ``between`` is the share of the noise width that start effects make up (0: all noise is within a start). A start moves
    each point by itself, or all alike where ``shared``; ``uneven``: how many times as far it moves C=16 as the others.
    """

    base: int = 10
    base_starts: int = 1
    minimum: int = 5
    maximum: int = 20
    run_starts: int = 1
    between: float = 0.0
    sequential: bool = True
    shared: bool = False
    uneven: float = 1.0


def steps(
    rng: np.random.Generator, shape: Shape, width: float, effects: Array, count: int, between: float
) -> tuple[Array, list[int]]:
    """Relative step times of one side and the start of each sample, starts taking turns in blocks."""
    owner = sorted(i % len(effects) for i in range(count))
    within = width * np.sqrt(1 - between**2)
    values = 1 + within * shape.noise(rng, count) + effects[owner]
    return np.maximum(values, 0.05), owner


def sample(concurrency: int, step: float, jitter: float, start: int) -> Sample:
    """A valid sample with this step time in ms; ``jitter`` moves the throughput alone."""
    return Sample(
        max_concurrency=concurrency,
        completed=5 * concurrency,
        duration_s=5.0,
        total_input_tokens=1,
        total_output_tokens=1,
        output_throughput=0.8 * 1000 * concurrency / step * jitter,
        median_tpot_ms=step,
        server_start=start,
    )


@dataclass(frozen=True)
class Starts:
    """What each server start of either side adds to the relative step time at each point."""

    old: dict[int, Array]
    new: dict[int, Array]


def draw_starts(rng: np.random.Generator, width: float, points: tuple[int, ...], plan: Plan) -> Starts:
    def one(count: int) -> dict[int, Array]:
        common = rng.normal(0, width * plan.between, count)
        own = {c: common if plan.shared else rng.normal(0, width * plan.between, count) for c in points}
        return {c: effects if c == LOOKED_AT else effects / plan.uneven for c, effects in own.items()}

    return Starts(one(plan.base_starts), one(plan.run_starts))


def side(
    rng: np.random.Generator,
    shape: Shape,
    width: float,
    concurrency: int,
    plan: Plan,
    starts: Starts,
    slower: float | None,
) -> list[Sample]:
    """Samples of a run that lost ``slower`` of its throughput, or of the baseline (None)."""
    effects, count = (starts.old[concurrency], plan.base) if slower is None else (starts.new[concurrency], plan.maximum)
    values, owner = steps(rng, shape, width, effects, count, plan.between)
    jitters = 1 + width / 8 * rng.standard_normal(count)
    center = STEP_MS[concurrency] / (1 - (slower or 0.0))
    return [
        sample(concurrency, center * v, max(j, 0.05), o)
        for v, j, o in zip(values.tolist(), jitters.tolist(), owner, strict=True)
    ]


def baseline_of(samples: list[Sample], concurrency: int, bounds: Bounds) -> Baseline:
    starts = tuple(s.server_start for s in samples)
    metrics = {}
    for name, values in (
        ("throughput", [s.output_throughput for s in samples]),
        ("step_time", [s.step_ms for s in samples]),
    ):
        metrics[name] = MetricBaseline(tuple(values), starts, median(values), robust_spread(values))
    return Baseline(concurrency, metrics, bounds=bounds, recorded_at="2026-11-29", commit="abc123")


def one_run(
    rng: np.random.Generator,
    shape: Shape,
    width: float,
    points: tuple[int, ...],
    plan: Plan,
    slower: float = 0.0,
    comparisons: int | None = None,
) -> tuple[dict[int, Verdict], dict[int, int]]:
    """A whole run in which the point ``LOOKED_AT`` lost ``slower``: verdict and number of samples, by point.

    ``comparisons``: those that the run's error is shared over, where not all of its points are drawn.
    """
    starts = draw_starts(rng, width, points, plan)
    bases = {c: baseline_of(side(rng, shape, width, c, plan, starts, None), c, Bounds()) for c in points}
    runs = {c: side(rng, shape, width, c, plan, starts, slower if c == LOOKED_AT else 0.0) for c in points}
    options = {"comparisons": comparisons or 2 * len(points)}
    if not plan.sequential:
        known = {c: starts_elsewhere([(runs[o], bases[o]) for o in points if o != c]) for c in points}
        return (
            {c: judge(runs[c], bases[c], elsewhere=known[c], **options) for c in points},
            {c: plan.maximum for c in points},
        )
    looks = {"min_samples": plan.minimum, "max_samples": plan.maximum}
    verdicts, taken = {}, {}
    for c in points:
        count = plan.minimum
        while next_step(runs[c][:count], bases[c], plan.minimum, plan.maximum, **options) == "more":
            count += 1
        verdicts[c], taken[c] = judge(runs[c][:count], bases[c], **looks, **options), count
    return verdicts, taken


def outcome_of(verdicts: dict[int, Verdict]) -> Outcome:
    """Outcome of the whole run."""
    outcome, _ = run_verdict(list(verdicts.values()))
    return outcome
