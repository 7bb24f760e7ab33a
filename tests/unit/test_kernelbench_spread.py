"""The bound of a kernel's time: as close as repeated runs can tell, and no false alarm at the spread that was measured."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from kernelbench_kit import RATES, run

from perfgate.kernelbench import baseline, judge, recording, spread
from perfgate.kernelbench.shapes import HcShape
from perfgate.result import Outcome

TIMES = (10.6, 11.1, 11.1, 11.2, 16.3, 16.6, 23.0, 26.1, 30.5, 58.1, 58.1, 58.3, 67.7, 79.8)
"""Medians on an H200 in microseconds, of which an empty graph takes 4.9."""
SHAPES = {HcShape(at): us for at, us in enumerate(TIMES, 1)}
SHORT, LONG = HcShape(1), HcShape(12)
MEASURED = (0.065, 0.0006)
"""Standard deviation between two runs of one H200: microseconds, and a share of the time."""


def measured(rng, spread_us_and_share, losses=None):
    """A run as the card gives it: every shape's median moves by its own, and each replay by 1 %."""
    fixed, share = spread_us_and_share
    times = {
        (shape, "ours"): us + (losses or {}).get(shape, 0.0) + rng.gauss(0, math.hypot(fixed, share * us))
        for shape, us in SHAPES.items()
    }
    return run(times, seed=rng.randrange(10**9), noise=0.01, rates=RATES | {"floor_us": 4.9}, quick=True)


def judged(path, rng, recorded, runs, losses=None, of=MEASURED):
    path.unlink(missing_ok=True)
    first = [measured(rng, of) for _ in range(recorded)]
    recording.record(path, first, reason="first", recorded_at="2026-11-30")
    found = judge.judge([measured(rng, of, losses) for _ in range(runs)], baseline.load(path))
    return {one.key: one.outcome for one in found}


@pytest.mark.parametrize(("recorded", "runs"), [(1, 1), (2, 1), (3, 3)])
def test_unchanged_code_passes_at_the_spread_that_was_measured(tmp_path, recorded, runs):
    rng, counts = random.Random(recorded), Counter()
    for _ in range(12):
        counts.update(judged(tmp_path / "x.json", rng, recorded, runs).values())
    assert counts[Outcome.REGRESSION] == counts[Outcome.IMPROVED] == 0
    assert counts[Outcome.PASS] >= 0.98 * 12 * len(TIMES)


def test_unchanged_code_is_no_regression_where_runs_lie_further_apart(tmp_path):
    rng, counts = random.Random(2), Counter()
    for _ in range(12):
        counts.update(judged(tmp_path / "x.json", rng, 2, 1, of=(0.14, 0.004)).values())
    assert counts[Outcome.REGRESSION] == counts[Outcome.IMPROVED] == 0


def test_half_a_microsecond_of_a_short_kernel_does_not_pass_and_three_runs_a_side_find_it(tmp_path):
    """Of 250 single runs with such a loss none passed and 62 were regressions, of 60 threes of them all."""
    rng = random.Random(3)
    once = Counter(judged(tmp_path / "x.json", rng, 1, 1, {SHORT: 0.5})[SHORT.key] for _ in range(12))
    assert once[Outcome.PASS] <= 1
    often = Counter(judged(tmp_path / "x.json", rng, 3, 3, {SHORT: 0.5})[SHORT.key] for _ in range(10))
    assert often[Outcome.REGRESSION] >= 9


def test_three_percent_of_a_long_kernel_are_found_with_one_run_a_side(tmp_path):
    rng = random.Random(4)
    found = Counter(judged(tmp_path / "x.json", rng, 1, 1, {LONG: 0.03 * SHAPES[LONG]})[LONG.key] for _ in range(10))
    assert found[Outcome.REGRESSION] >= 8
    assert found[Outcome.PASS] == 0


def test_the_bound_is_of_the_kernels_own_time_and_closer_the_more_runs_there_are():
    one, three = [0] * 12, [0] * 12 + [1] * 12 + [2] * 12
    assert spread.smallest_us(1000.0, 4.9, one, one) == pytest.approx(0.02 * 995.1)
    short = [spread.smallest_us(10.6, 4.9, starts, starts) for starts in (one, three)]
    assert short == [pytest.approx(0.52, abs=0.01), pytest.approx(0.30, abs=0.01)]
    assert spread.smallest_us(4.0, 4.9, one, one) > 0


def test_what_other_shapes_show_counts_in_units_of_what_is_assumed_of_each():
    logs = lambda us, apart: [math.log(us) + apart * at for at in (0, 1) for _ in range(12)]  # noqa: E731
    starts = [at for at in (0, 1) for _ in range(12)]
    medians = {"short": 10.0, "long": 100.0, "asked": 10.0}
    twice = {key: 2 * spread.between_runs(us) * math.sqrt(2) for key, us in medians.items()}
    sides = {key: ((logs(us, twice[key]), starts), ([math.log(us)], [0])) for key, us in medians.items()}
    seen = spread.elsewhere("asked", 10.0, sides, medians)
    assert seen.df == 2, "its own runs are not the others'"
    assert math.sqrt(seen.variance) == pytest.approx(2 * spread.between_runs(10.0))
    assert spread.elsewhere("asked", 10.0, {"asked": sides["asked"]}, medians).df == 0
