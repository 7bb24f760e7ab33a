"""The fitted step-time law: parameters, intervals, what it can and cannot say."""

import math

import numpy as np
import pytest

from perfgate.scaling import ScalingError, expert_coverage, fit

SWEEP = (1, 2, 4, 8, 16, 32, 64)


def noisy(law, noise, seed=0, sweep=SWEEP):
    rng = np.random.default_rng(seed)
    return [(n, law(n) * (1 + noise * rng.standard_normal()), law(n) * noise) for n in sweep]


def test_line_is_recovered_with_intervals_that_hold_the_truth():
    law = fit(noisy(lambda n: 1.65 + 0.03 * n, 0.003))
    assert law.a_interval[0] < 1.65 < law.a_interval[1]
    assert law.b_interval[0] < 0.03 < law.b_interval[1]
    assert law.e is None
    assert law.asymptote == pytest.approx(1000 / law.b)
    assert law.asymptote_interval[0] < 1000 / 0.03 < law.asymptote_interval[1]


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    # 95 % of 400 with 4 binomial standard deviations of room on either side.
    held = 0
    for seed in range(400):
        law = fit(noisy(lambda n: 1.65 + 0.03 * n, 0.003, seed))
        held += law.b_interval[0] < 0.03 < law.b_interval[1]
    assert 0.90 < held / 400 < 0.995


def test_expert_coverage_follows_the_published_figures():
    # anchors: 6, 81, 200 of 256 with top-6 at N = 1, 16, 64
    assert [round(expert_coverage(n, (256, 6))) for n in (1, 16, 64)] == [6, 81, 200]


def test_experts_cost_is_told_apart_from_cost_per_request():
    truth = lambda n: 2.0 + 0.02 * expert_coverage(n, (256, 6)) + 0.05 * n  # noqa: E731
    law = fit(noisy(truth, 0.002), experts=(256, 6))
    assert law.e_interval[0] < 0.02 < law.e_interval[1]
    assert law.b_interval[0] < 0.05 < law.b_interval[1]
    assert law.predict(64) == pytest.approx(truth(64), rel=0.01)


@pytest.mark.parametrize(
    ("sweep", "experts", "dof", "testable"),
    [
        ((1, 64), None, 0, False),
        ((1, 16, 64), None, 1, False),
        ((1, 4, 16, 64), None, 2, True),
        ((1, 4, 16, 64), (256, 6), 1, False),
        ((1, 2, 4, 16, 64), (256, 6), 2, True),
    ],
)
def test_few_points_are_not_testable_and_say_so(sweep, experts, dof, testable):
    law = fit(noisy(lambda n: 2 + 0.1 * n, 0.01, sweep=sweep), experts=experts)
    assert law.dof == dof
    assert law.testable is testable
    assert (law.residual_p is None) is not testable
    assert any("not testable" in line for line in law.verdicts) is not testable


@pytest.mark.parametrize("sweep", [(1, 16), (1, 16, 64)])
def test_too_few_points_for_a_law_with_experts_give_none_rather_than_a_line(sweep):
    with pytest.raises(ScalingError, match=r"4 or more concurrencies to tell the experts' cost.*got"):
        fit([(n, 1.5 + 0.06 * n, 0.01) for n in sweep], experts=(256, 6))


def test_a_cost_per_request_that_may_be_none_gives_no_limit():
    law = fit([(1, 10.0, 0.1), (16, 10.05, 0.1), (64, 10.1, 0.1)])
    assert law.b > 0
    assert "tok/s" not in law.verdicts[0]
    assert "no cost per request is seen" in law.verdicts[0]


def test_the_campaigns_law_is_a_cost_that_no_batch_amortises():
    law = fit([(1, 71.0, 0.7), (16, 536.0, 5), (64, 2024.0, 20)])
    assert law.b == pytest.approx(31, rel=0.01)
    assert law.asymptote == pytest.approx(1000 / 31, rel=0.01)
    assert law.verdicts[0].startswith("a cost per request that no batch amortises")


@pytest.mark.parametrize("steps", [(1.68, 2.39, 3.55), (2.36, 6.99, 19.7)])
def test_healthy_servers_are_not_said_to_have_an_unamortised_cost(steps):
    # v4mini on an H200 and the tiny model on a CPU, as measured.
    law = fit([(n, s, 0.005 * s) for n, s in zip((1, 16, 64), steps, strict=True)])
    assert not any("no batch amortises" in line for line in law.verdicts)


def test_a_law_without_a_cost_per_request_has_no_finite_asymptote():
    assert fit([(1, 5.0, 0.1), (64, 4.9, 0.1)]).asymptote == math.inf


@pytest.mark.parametrize("points", [[], [(1, 2, 0.1)], [(4, 2, 0.1), (4, 2.1, 0.1)]])
def test_fewer_than_two_concurrencies_are_refused(points):
    with pytest.raises(ScalingError, match="2 or more concurrencies"):
        fit(points)


@pytest.mark.parametrize("bad", [(0, 2, 0.1), (1, -2, 0.1), (1, math.nan, 0.1), (1, 2, -0.1), (1, math.inf, 0)])
def test_figures_that_cannot_be_are_refused_with_the_point(bad):
    with pytest.raises(ScalingError, match="a point needs"):
        fit([bad, (64, 4, 0.1)])
