"""The run from its points: worst first, and the pattern over the points."""

import pytest
from judging import baseline, noise, sample, samples

from perfgate.baseline import smoke
from perfgate.result import Outcome
from perfgate.verdict import judge, run_verdict

SWEEP = (1, 4, 16, 64)


def points(changes, width=0.003):
    return [
        judge(samples(noise(10, width, 1000 * (1 + change), seed=c), c), baseline(noise(10, width, seed=100 + c), c))
        for c, change in changes.items()
    ]


def test_a_run_that_measured_nothing_is_missing():
    assert run_verdict([]) == (Outcome.MISSING, "nothing was measured")


def test_all_points_passing_pass_and_gains_are_named():
    outcome, why = run_verdict(points({1: 0, 16: 0, 64: 0.05}))
    assert outcome is Outcome.IMPROVED
    assert why.startswith("3 of 3 points")
    assert "C=64" in why


@pytest.mark.parametrize("bad", [Outcome.MISSING, Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.NO_BASELINE])
def test_one_point_without_an_answer_keeps_the_run_from_passing(bad):
    made = {
        Outcome.MISSING: judge([], baseline(noise(5), 64)),
        Outcome.INVALID: judge(samples(noise(5), 64), baseline(noise(5), 64), problems=["x"]),
        Outcome.INCONCLUSIVE: judge(samples(noise(5, 0.2), 64), baseline(noise(5, 0.2, seed=2), 64)),
        Outcome.NO_BASELINE: judge(samples(noise(5), 64), None),
    }[bad]
    assert made.outcome is bad
    outcome, why = run_verdict([*points({1: 0, 16: 0.05}), made])
    assert outcome is bad
    assert f"C=64 {bad.value}" in why


@pytest.mark.field_case("N15")
def test_all_points_slower_alike_point_at_the_environment_and_still_fail():
    outcome, why = run_verdict(
        points(dict.fromkeys(SWEEP, -0.12)), {"driver": "570 -> 580", "SM clock": "1980 -> 1730 MHz"}
    )
    assert outcome is Outcome.REGRESSION
    assert "environment: check clocks, driver" in why
    assert "driver 570 -> 580" in why
    assert "SM clock" in why


def test_a_metric_that_improved_does_not_explain_the_one_that_regressed():
    # Throughput 5 % down, the step 10 % shorter, everywhere.
    both = [
        judge(
            [sample(0.95 * v, c, median_tpot_ms=0.9 * 0.8 * 1000 * c / v) for v in noise(20, seed=c + 100)],
            baseline(noise(20, seed=c), c),
        )
        for c in SWEEP
    ]
    assert {m.outcome for v in both for m in v.metrics} == {Outcome.REGRESSION, Outcome.IMPROVED}
    outcome, why = run_verdict(both)
    assert outcome is Outcome.REGRESSION
    assert "environment" not in why
    assert "4 slower, 0 not, speed -5." in why


@pytest.mark.field_case("N02")
def test_one_light_cell_worse_while_others_are_better_says_so_and_still_fails():
    outcome, why = run_verdict(points({1: -0.25, 4: 0.05, 16: 0.12, 64: 0.21}))
    assert outcome is Outcome.REGRESSION
    assert "One light cell, C=1, is worse while the others are as good or better" in why


def test_a_single_bad_point_is_not_blamed_on_the_environment():
    outcome, why = run_verdict(points({1: 0, 4: 0, 16: 0, 64: -0.1}))
    assert outcome is Outcome.REGRESSION
    assert "environment" not in why


def test_a_loss_that_grows_with_concurrency_is_not_uniform():
    _, why = run_verdict(points({1: -0.04, 4: -0.1, 16: -0.3, 64: -0.5}))
    assert "environment" not in why


@pytest.mark.field_case("N08")
def test_changes_both_ways_are_shown_as_a_distribution():
    _, why = run_verdict(points({1: -0.05, 4: 0.05, 16: -0.06, 64: 0.07}))
    assert "2 slower, 2 not, speed -" in why


def test_a_pattern_needs_two_points_and_no_point_loses_more_than_all_of_its_speed():
    _, why = run_verdict(points({16: -0.8}))
    assert why == "1 of 1 points did not pass: C=16 REGRESSION"
    _, why = run_verdict(points({1: -0.8, 16: 0.0}))
    assert "1 slower, 1 not, speed -80." in why


def test_a_regression_by_the_smoke_floor_alone_is_a_verdict_though_nothing_was_compared():
    floors = {1: 90.0, 64: 150.0}
    outcome, why = run_verdict(
        [judge(samples(noise(3, 0.003, 100), c), smoke(c, floor)) for c, floor in floors.items()]
    )
    assert outcome is Outcome.REGRESSION
    assert "C=64 REGRESSION" in why


def test_an_ab_never_blames_the_environment_that_both_sides_had():
    alike = points({1: -0.1, 16: -0.1, 64: -0.1})
    assert "environment" in run_verdict(alike)[1]
    outcome, why = run_verdict(alike, paired=True)
    assert outcome is Outcome.REGRESSION
    assert "environment" not in why
    assert "an A/B" not in run_verdict(points({1: 0.0, 16: 0.05, 64: -0.1}), paired=True)[1]
