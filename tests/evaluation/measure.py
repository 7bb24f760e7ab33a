"""Cells of the evaluation: many runs of known truth, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from full import upper_end
from histories import LOOKED_AT, SHAPES, Array, Plan, Shape, one_run, outcome_of, sample

from perfgate.baseline import Bounds
from perfgate.history import change_points, slow_drift
from perfgate.result import Outcome
from perfgate.verdict import judge_ab

WIDTH = 0.005
THREE = (1, 16, 64)
SEVEN = (1, 2, 4, 8, 16, 32, 64)

STORED = Plan(base=10, minimum=5, maximum=20)
BOTH_20 = Plan(base=20, maximum=20, sequential=False)
STARTS = Plan(base=20, base_starts=5, maximum=20, run_starts=5, between=0.7, sequential=False)
SHARED = replace(STARTS, shared=True)
UNEVEN = replace(STARTS, uneven=10.0)


@dataclass(frozen=True)
class Count:
    """Outcomes of ``runs`` tries, and the samples that they took on average."""

    runs: int
    outcomes: Counter[Outcome]
    samples: float

    def rate(self, *outcomes: Outcome) -> float:
        return sum(self.outcomes[o] for o in outcomes) / self.runs

    @property
    def alarms(self) -> int:
        return self.outcomes[Outcome.REGRESSION]

    @property
    def alarm_limit(self) -> float:
        return upper_end(self.alarms, self.runs)


def count(tries: int, seed: int, once: Callable[[np.random.Generator], tuple[Outcome, float]]) -> Count:
    rng = np.random.default_rng(seed)
    outcomes: Counter[Outcome] = Counter()
    taken = 0.0
    for _ in range(tries):
        outcome, samples = once(rng)
        outcomes[outcome] += 1
        taken += samples
    return Count(tries, outcomes, taken / tries)


def quiet(shape: Shape, width: float, plan: Plan, points: tuple[int, ...], tries: int, seed: int = 1) -> Count:
    """Whole runs of unchanged code: each REGRESSION is a false alarm. Samples are counted a point."""

    def once(rng: np.random.Generator) -> tuple[Outcome, float]:
        verdicts, taken = one_run(rng, shape, width, points, plan)
        return outcome_of(verdicts), sum(taken.values()) / len(points)

    return count(tries, seed, once)


def slowed(shape: Shape, width: float, plan: Plan, drop: float, tries: int, seed: int = 2) -> Count:
    """One point of a three-point run that lost ``drop`` of its throughput."""
    # Only starts tie the points together: with one start the others would be drawn and judged for nothing.
    points = THREE if plan.run_starts > 1 else (LOOKED_AT,)

    def once(rng: np.random.Generator) -> tuple[Outcome, float]:
        verdicts, taken = one_run(rng, shape, width, points, plan, drop, comparisons=2 * len(THREE))
        return verdicts[LOOKED_AT].outcome, taken[LOOKED_AT]

    return count(tries, seed, once)


def ab(
    drop: float, tries: int, pairs: int, width: float = WIDTH, drift: float = 0.05, bursts: float = 0.0, seed: int = 3
) -> Count:
    """Interleaved pairs while the machine drifts by ``drift`` over the run, ten times the noise, alike for both.

    ``bursts``: the share of time in which other work slows the machine by up to half; one sets in and ends between any
    two samples, so it hits one sample of a pair or both.
    """

    def once(rng: np.random.Generator) -> tuple[Outcome, float]:
        course = 1 + drift * rng.uniform(-1, 1) * np.arange(pairs) / pairs
        load = iter(busy(rng, 2 * pairs, bursts).tolist())
        rows = []
        for common in course.tolist():
            steps = (2.39 * common * (1 + width * rng.standard_normal(2))).tolist()
            jitters = (1 + width / 8 * rng.standard_normal(2)).tolist()
            both = [steps[0], steps[1] / (1 - drop)]
            for side in rng.permutation(2).tolist():
                both[side] *= next(load)
            rows.append((sample(16, both[0], jitters[0], 0), sample(16, both[1], jitters[1], 0)))
        return judge_ab(rows, bounds=Bounds(), comparisons=2 * len(THREE)).outcome, pairs

    return count(tries, seed, once)


def busy(rng: np.random.Generator, samples: int, share: float, stays: float = 0.7) -> Array:
    """Slow-down factor of each of ``samples`` in time order: 1, or up to 1.5 while other work runs."""
    factors, running, height = np.ones(samples), rng.random() < share, 0.0
    for i in range(samples):
        before = running
        # A burst goes on with chance ``stays``; one sets in as often as keeps the share.
        running = rng.random() < (stays if running else share * (1 - stays) / max(1e-9, 1 - share))
        if running:
            height = height if before and height else rng.uniform(0, 0.5)
            factors[i] += height
        else:
            height = 0.0
    return factors


def histories(tries: int, runs: int = 30, noise: float = WIDTH, seed: int = 4) -> dict[str, int]:
    """Histories of ``runs`` run medians in which something was found, by what was in them."""
    rng = np.random.default_rng(seed)
    found: Counter[str] = Counter()
    place = np.arange(runs)
    for _ in range(tries):
        still = 100 * np.exp(rng.normal(0, noise, runs))
        fast = still.copy()
        fast[rng.integers(1, runs - 1)] *= 3.3
        found["unchanged: a change point"] += bool(change_points(still))
        found["unchanged: a drift"] += slow_drift(still) is not None
        found["one fast run: a change point"] += bool(change_points(fast))
        found["step of 1.5 %: a change point"] += bool(change_points(still * np.where(place < runs // 2, 1, 0.985)))
        found["drift of 3 % in all: a drift"] += slow_drift(still * (1 - 0.03 * place / runs)) is not None
    return dict(found)


def width_of(shape: Shape, width: float = WIDTH) -> float:
    return shape.width or width


__all__ = [
    "BOTH_20",
    "SEVEN",
    "SHAPES",
    "SHARED",
    "STARTS",
    "STORED",
    "THREE",
    "UNEVEN",
    "WIDTH",
    "Count",
    "ab",
    "histories",
    "quiet",
    "slowed",
    "width_of",
]
