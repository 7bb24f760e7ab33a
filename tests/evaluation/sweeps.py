"""Honest sweeps, made up, and the laws of a decode step that noise alone broke in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from perfgate import physics
from perfgate.recipe import Point, Recipe, load
from perfgate.result import Outcome, PointResult, SampleRow
from perfgate.scaling import expert_coverage

RECIPES = Path(__file__).parents[2] / "recipes"
SEVEN = (1, 2, 4, 8, 16, 32, 64)


def at_any(name: str, between: float) -> Recipe:
    """A recipe of the repository at any concurrency, with a stated spread between its starts: a large one would hide what
    the samples' own noise does."""
    known = load(RECIPES / f"{name}.toml")
    bounds = known.bounds.model_copy(update={"between_start_rel_sd": between})
    return known.model_copy(update={"bounds": bounds, "points": [Point(concurrency=c) for c in (*SEVEN, 17, 33)]})


TINY = at_any("cpu-tiny", 0.03)
DENSE = at_any("cpu-tiny", 0.001)
GAPS = at_any("v4mini-patched-gaps", 0.001)
FLAT = dict.fromkeys(SEVEN, 10.0)
"""Step time in ms by concurrency, the worst case of an honest sweep: any less and it would fall."""

FLAT_THREE = dict.fromkeys((1, 16, 64), 10.0)
LINE = {n: 1.65 + 0.03 * n for n in SEVEN}


def moe(*concurrencies: int) -> dict[int, float]:
    """1.53, 3.05 and 5.6 ms at C = 1, 16 and 64, as docs/h200.md has them, and what experts make of the others."""
    return {n: 1.41 + 0.0191 * expert_coverage(n, (256, 6)) + 0.0057 * n for n in concurrencies}


def measured(
    rng: np.random.Generator, steps: Mapping[int, float], noise: float, samples: int, uneven: float = 1.0
) -> list[PointResult]:
    """Points with ``samples`` samples of relative ``noise`` each, at the smallest concurrency ``uneven`` times as large."""
    points = []
    for concurrency, step in steps.items():
        width = noise * (uneven if concurrency == min(steps) else 1.0)
        values = step * np.exp(width * rng.standard_normal(samples))
        rows = [
            SampleRow(
                index=i,
                asked=5,
                completed=5,
                throughput=0.8 * 1000 * concurrency / v,
                step_ms=v,
                mean_tpot_ms=v,
                counted=True,
            )
            for i, v in enumerate(values.tolist())
        ]
        points.append(PointResult(concurrency=concurrency, outcome=Outcome.PASS, why="", samples=rows))
    return points


def broken(recipe: Recipe, points: list[PointResult]) -> set[str]:
    """The laws that these points break, by name and without the point."""
    return {c.name.split(" C=")[0] for c in physics.check(recipe, points) if not c.outcome.passes}


def wrong(
    recipe: Recipe,
    steps: Mapping[int, float],
    noise: float,
    samples: int,
    tries: int,
    uneven: float = 1.0,
    seed: int | np.random.SeedSequence = 6,
) -> Counter[str]:
    """In how many of ``tries`` honest sweeps a law broke, by law, and ``any`` of them."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    for _ in range(tries):
        laws = broken(recipe, measured(rng, steps, noise, samples, uneven))
        found.update([*laws, *(["any"] if laws else [])])
    return found
