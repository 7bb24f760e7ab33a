"""Runs of one or several server starts against baselines of one or several, as docs/baselines.md has users make them, of a
recipe that says nothing of how far starts differ: made up, and judged as the gate judges them."""

from __future__ import annotations

import numpy as np
from histories import LOOKED_AT, SHAPES, Plan, Starts, baseline_of, outcome_of, side
from measure import THREE, Count, count

from perfgate.baseline import Bounds
from perfgate.result import Outcome
from perfgate.verdict import Verdict, judge, starts_elsewhere
from perfgate.yardstick import AGREE, UNSTATED

QUIET = 0.002
"""Noise width within a start: small, so that what starts differ by is seen."""

EACH = 5
"""Samples of a point at each of several starts; a single start takes 5 to 10, until the answer is clear."""

BOUNDS = Bounds(between_start=AGREE, unstated=UNSTATED)


def against_recorded(
    drop: float,
    tries: int,
    recorded: int,
    run: int,
    between: float,
    shared: bool = False,
    modes: bool = False,
    whole: bool = True,
    seed: int | np.random.SeedSequence = 5,
) -> Count:
    """Runs of ``run`` starts at three points, one of which lost ``drop``, against baselines of ``recorded`` starts.

    ``between``: relative deviation of one start's effect, ``shared`` by all points or each point's own; with ``modes`` a
    start is so much faster or slower, one or the other. ``whole``: count the run's outcome, not that point's.
    """

    def once(rng: np.random.Generator) -> tuple[Outcome, float]:
        verdicts, samples = one_run(rng, drop, recorded, run, between, shared, modes)
        return outcome_of(verdicts) if whole else verdicts[LOOKED_AT].outcome, samples

    return count(tries, seed, once)


def one_run(
    rng: np.random.Generator, drop: float, recorded: int, run: int, between: float, shared: bool, modes: bool
) -> tuple[dict[int, Verdict], float]:
    """The verdicts of a run, and its samples a point."""
    least, most = (EACH, 2 * EACH) if run == 1 else (run * EACH, run * EACH)
    plan = Plan(base=recorded * EACH, base_starts=recorded, minimum=least, maximum=most, run_starts=run)

    def draw(starts: int) -> np.ndarray:
        return between * (rng.choice([-1.0, 1.0], starts) if modes else rng.standard_normal(starts))

    def effects(starts: int) -> dict[int, np.ndarray]:
        common = draw(starts)
        return {c: common if shared else draw(starts) for c in THREE}

    starts = Starts(effects(recorded), effects(run))
    gaussian = SHAPES[0]
    bases = {c: baseline_of(side(rng, gaussian, QUIET, c, plan, starts, None), c, BOUNDS) for c in THREE}
    slower = {c: drop if c == LOOKED_AT else 0.0 for c in THREE}
    runs = {c: side(rng, gaussian, QUIET, c, plan, starts, slower[c]) for c in THREE}
    taken = dict.fromkeys(THREE, least)

    def judged(concurrency: int) -> Verdict:
        others = [(runs[c][: taken[c]], bases[c]) for c in THREE if c != concurrency]
        return judge(
            runs[concurrency][: taken[concurrency]],
            bases[concurrency],
            min_samples=least,
            max_samples=most,
            comparisons=2 * len(THREE),
            elsewhere=starts_elsewhere(others),
        )

    while open_points := [c for c in THREE if taken[c] < most and judged(c).outcome is Outcome.INCONCLUSIVE]:
        for concurrency in open_points:
            taken[concurrency] += 1
    return {c: judged(c) for c in THREE}, sum(taken.values()) / len(THREE)
