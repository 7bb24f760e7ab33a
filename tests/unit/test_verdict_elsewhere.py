"""What the other points of a run say about the spread between server starts."""

import numpy as np
import pytest
from unit.judging import baseline, samples

from perfgate.baseline.model import METRICS
from perfgate.result import Outcome
from perfgate.stats import NOTHING, between_starts
from perfgate.verdict import judge, starts_elsewhere
from perfgate.verdict.compare import sides

STARTS = [s for s in range(5) for _ in range(4)]


def measured(seed: int, between: float, level: float = 1000.0, concurrency: int = 16):
    """20 samples over 5 starts that lie ``between`` apart, and as a baseline."""
    rng = np.random.default_rng(seed)
    values = (level * np.exp(np.repeat(rng.normal(0, between, 5), 4) + rng.normal(0, 0.0005, 20))).tolist()
    run = [s for v, start in zip(values, STARTS, strict=True) for s in samples([v], concurrency, server_start=start)]
    return run, baseline(values, concurrency, starts=STARTS)


def test_starts_are_pooled_over_both_sides_and_all_points():
    (one, base_one), (two, base_two) = measured(1, 0.01, concurrency=1), measured(2, 0.01, concurrency=64)
    found = starts_elsewhere([(one, base_one), (two, base_two)])
    assert found["throughput"].df == 16
    by_hand = [
        side
        for run, base in ((one, base_one), (two, base_two))
        for side in sides(METRICS["throughput"], [s.output_throughput for s in run], STARTS, base.metrics["throughput"])
    ]
    assert found["throughput"].variance == pytest.approx(between_starts(by_hand).variance)


def test_points_without_a_baseline_or_samples_say_nothing():
    run, base = measured(1, 0.01)
    assert starts_elsewhere([(run, None), ([], base)]) == {"throughput": NOTHING, "step_time": NOTHING}


def test_a_loss_that_few_starts_leave_open_is_found_where_other_points_know_the_starts():
    # Starts are 0.4 % apart at every point; this one's own ten leave a loss of 1.4 % within what noise may do.
    (run, _), (_, base) = measured(76, 0.004, level=986), measured(77, 0.004)
    assert judge(run, base, comparisons=6).outcome is Outcome.INCONCLUSIVE
    others = starts_elsewhere([measured(576, 0.004, concurrency=1), measured(577, 0.004, concurrency=64)])
    assert judge(run, base, comparisons=6, elsewhere=others).outcome is Outcome.REGRESSION


def test_other_points_with_wild_starts_make_a_point_careful():
    run, _ = measured(3, 0.001, level=980)
    _, base = measured(4, 0.001)
    assert judge(run, base, comparisons=6).outcome is Outcome.REGRESSION
    wild = starts_elsewhere([measured(seed, 0.05, concurrency=c) for seed, c in ((5, 1), (6, 64))])
    assert judge(run, base, comparisons=6, elsewhere=wild).outcome is Outcome.INCONCLUSIVE
