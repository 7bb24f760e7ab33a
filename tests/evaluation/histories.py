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
from perfgate.verdict import judge, next_step, run_verdict
from perfgate.workload import Sample

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Array]

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

    ``between`` is the share of the noise width that start effects make up (0: all noise is within a start).
    """

    base: int = 10
    base_starts: int = 1
    minimum: int = 5
    maximum: int = 20
    run_starts: int = 1
    between: float = 0.0
    sequential: bool = True


def steps(
    rng: np.random.Generator, shape: Shape, width: float, count: int, starts: int, between: float
) -> tuple[Array, list[int]]:
    """Relative step times of one side and the start of each sample, starts taking turns in blocks."""
    owner = sorted(i % starts for i in range(count))
    effects = rng.normal(0, width * between, starts)
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


def side(
    rng: np.random.Generator, shape: Shape, width: float, concurrency: int, plan: Plan, is_base: bool, slower: float
) -> list[Sample]:
    count, starts = (plan.base, plan.base_starts) if is_base else (plan.maximum, plan.run_starts)
    values, owner = steps(rng, shape, width, count, starts, plan.between)
    jitters = 1 + width / 8 * rng.standard_normal(count)
    center = STEP_MS[concurrency] / (1 - slower)
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


def one_point(
    rng: np.random.Generator,
    shape: Shape,
    width: float,
    concurrency: int,
    plan: Plan,
    slower: float,
    comparisons: int,
    bounds: Bounds | None = None,
):
    """The verdict on one point of a run, and how many samples it took. ``slower``: the true loss of throughput."""
    base = baseline_of(side(rng, shape, width, concurrency, plan, True, 0.0), concurrency, bounds or Bounds())
    run = side(rng, shape, width, concurrency, plan, False, slower)
    if not plan.sequential:
        return judge(run, base, comparisons=comparisons), len(run)
    taken = plan.minimum
    # Starts come in blocks, so a run over several of them is taken in their order turn by turn.
    order = sorted(range(len(run)), key=lambda i: (i % max(1, len(run) // plan.run_starts), i))
    while (
        next_step([run[i] for i in order[:taken]], base, plan.minimum, plan.maximum, comparisons=comparisons) == "more"
    ):
        taken += 1
    used = [run[i] for i in order[:taken]]
    options = {"min_samples": plan.minimum, "max_samples": plan.maximum, "comparisons": comparisons}
    return judge(used, base, **options), taken


def one_run(
    rng: np.random.Generator, shape: Shape, width: float, points: tuple[int, ...], plan: Plan, slower: float = 0.0
) -> tuple[Outcome, int]:
    """Outcome of a whole run over ``points``, and its samples in all."""
    judged = [one_point(rng, shape, width, c, plan, slower, 2 * len(points)) for c in points]
    outcome, _ = run_verdict([verdict for verdict, _ in judged])
    return outcome, sum(taken for _, taken in judged)
