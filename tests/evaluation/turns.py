"""A/B runs whose sides take turns, each on server starts of its own: made up, and judged as the gate judges them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from histories import LOOKED_AT, STEP_MS, outcome_of, sample
from measure import THREE, WIDTH, Count, count

from perfgate.baseline import Bounds
from perfgate.result import Outcome
from perfgate.turns import LEAST, MOST
from perfgate.verdict import Verdict, judge_ab, rounds_elsewhere
from perfgate.workload import Sample

EACH = 3
"""Samples of a point at each start."""

Pairs = dict[int, list[tuple[Sample, Sample]]]


def in_turns(
    drop: float,
    tries: int,
    between: float,
    drift: float = 0.05,
    shared: bool = False,
    uneven: float = 1.0,
    whole: bool = True,
    starts: tuple[int, int] = (LEAST, MOST),
    points: Sequence[int] = THREE,
    seed: int | np.random.SeedSequence = 5,
) -> Count:
    """Runs of three ``points``, or others, of which one lost ``drop`` on the new side, while the machine drifts by up to ``drift``.

    ``between``: relative deviation of one start's effect, ``shared`` by all points or each point's own; the looked-at
    point's is ``uneven`` times as large. The recipe states 0.1 %. ``whole``: count the run's outcome, not that point's.
    ``starts``: fewest and most of each side.
    """

    def once(rng: np.random.Generator) -> tuple[Outcome, float]:
        verdicts, rounds = one_run(rng, drop, between, drift, shared, uneven, starts, points)
        return outcome_of(verdicts) if whole else verdicts[LOOKED_AT].outcome, float(rounds)

    return count(tries, seed, once)


def one_run(
    rng: np.random.Generator,
    drop: float,
    between: float,
    drift: float,
    shared: bool,
    uneven: float,
    starts: tuple[int, int],
    points: Sequence[int],
) -> tuple[dict[int, Verdict], int]:
    """The verdicts of a run that stops where they are clear, and its rounds."""
    slope, (fewest, most) = drift * rng.uniform(-1, 1), starts
    pairs: Pairs = {c: [] for c in points}
    verdicts: dict[int, Verdict] = {}
    order = [1, 0]
    for number in range(1, most + 1):
        todo = [c for c in points if c not in verdicts or verdicts[c].outcome is Outcome.INCONCLUSIVE]
        if not todo:
            return verdicts, number - 1
        common = rng.standard_normal(2)
        for concurrency in todo:
            effect = common if shared else rng.standard_normal(2)
            scale = between * (uneven if concurrency == LOOKED_AT else 1.0)
            slower = (0.0, drop if concurrency == LOOKED_AT else 0.0)
            sides: list[list[Sample]] = [[], []]
            for place, side in enumerate(order):
                course = 1 + slope * (2 * (number - 1) + place) / (2 * most)
                level = STEP_MS[concurrency] * course * (1 + scale * float(effect[side])) / (1 - slower[side])
                sides[side] = _samples(rng, concurrency, level, number)
            pairs[concurrency] += zip(*sides, strict=True)
        if number >= fewest:
            for concurrency in todo:
                verdicts[concurrency] = judge_ab(
                    pairs[concurrency],
                    bounds=Bounds(between_start=0.001),
                    min_samples=most * EACH - (most - fewest),
                    max_samples=most * EACH,
                    comparisons=2 * len(points),
                    elsewhere=rounds_elsewhere([p for c, p in pairs.items() if c != concurrency]),
                )
        order = order[::-1] if number % 2 == 1 else rng.permutation(2).tolist()
    return verdicts, most


def _samples(rng: np.random.Generator, concurrency: int, level: float, start: int) -> list[Sample]:
    steps: Sequence[float] = (level * (1 + WIDTH * rng.standard_normal(EACH))).tolist()
    jitters: Sequence[float] = (1 + WIDTH / 8 * rng.standard_normal(EACH)).tolist()
    return [sample(concurrency, step, jitter, start) for step, jitter in zip(steps, jitters, strict=True)]
