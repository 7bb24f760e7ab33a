"""Intervals and spreads against published tables, closed forms and coverage by simulation."""

import math
import time

import numpy as np
import pytest
from scipy import stats as sp

from perfgate import stats
from perfgate.stats.shift import _normal, critical_t, critical_u


@pytest.mark.parametrize(("n", "m", "tail", "critical"), [(20, 20, 0.025, 127), (5, 5, 0.025, 2), (7, 7, 0.01, 6)])
def test_mann_whitney_critical_values_are_those_of_the_tables(n, m, tail, critical):
    assert critical_u(n, m, tail) == critical


@pytest.mark.parametrize(("n", "tail", "critical"), [(10, 0.025, 8), (20, 0.025, 52), (8, 0.01, 1)])
def test_signed_rank_critical_values_are_those_of_the_tables(n, tail, critical):
    assert critical_t(n, tail) == critical


def test_many_samples_are_judged_in_a_moment_by_the_normal_distribution_which_asks_for_no_less():
    began = time.process_time()
    assert critical_u.__wrapped__(1000, 1000, 1e-5) > 0
    assert critical_t.__wrapped__(1000, 1e-5) > 0
    assert time.process_time() - began < 1
    for n, m in ((100, 100), (1000, 10), (300, 30)):
        for tail in (0.025, 1e-3, 1e-5):
            exact = critical_u.__wrapped__(n, m, tail)
            assert 0 <= exact - _normal(n * m / 2, n * m * (n + m + 1) / 12, tail) <= 0.05 * n * m
    for tail in (0.025, 1e-3, 1e-5):
        exact = critical_t.__wrapped__(200, tail)
        assert 0 <= exact - _normal(200 * 201 / 4, 200 * 201 * 401 / 24, tail) <= 0.05 * 20100


@pytest.mark.parametrize("seed", range(5))
def test_shift_at_the_level_excludes_zero_just_where_the_rank_test_rejects(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(-1.2, 1, 10), rng.normal(0, 1, 12)
    alpha = 0.01
    rejected = sp.mannwhitneyu(x, y, alternative="less", method="exact").pvalue <= alpha
    assert (stats.two_sample_shift(x, y, alpha).high_at_alpha < 0) == rejected


def test_shift_is_robust_to_one_wild_value():
    x, y = [10.0 + i / 100 for i in range(12)], [9.0 + i / 100 for i in range(12)]
    clean = stats.two_sample_shift(x, y, 0.001)
    wild = stats.two_sample_shift([*x[:-1], 1e6], y, 0.001)
    assert wild.estimate == pytest.approx(clean.estimate, abs=0.02)
    assert wild.high < 2


def test_with_too_few_samples_for_the_level_the_method_is_t_and_is_the_pooled_one():
    x, y = [1.0, 1.1, 0.9], [2.0, 2.2, 2.1]
    shift = stats.two_sample_shift(x, y, 0.0003)
    reference = sp.ttest_ind(x, y).confidence_interval(0.95)
    assert shift.method == "t"
    assert not shift.exact
    assert (shift.low, shift.high) == pytest.approx((reference.low, reference.high))


def test_paired_shift_with_few_pairs_is_students_interval():
    d = [0.1, 0.2, 0.15, 0.05]
    shift = stats.paired_shift(d, 0.0003)
    reference = sp.ttest_1samp(d, 0).confidence_interval(0.95)
    assert (shift.low, shift.high) == pytest.approx((reference.low, reference.high))


@pytest.mark.parametrize("count", [6, 9, 20])
def test_median_interval_holds_a_skewed_median_as_often_as_it_says(count):
    rng = np.random.default_rng(count)
    held = sum(i.low <= 1.0 <= i.high for i in (stats.median_interval(rng.lognormal(0, 1, count)) for _ in range(600)))
    # Exact intervals hold it with 95 % or more; 600 tries have a standard deviation of 0.9 %.
    assert held / 600 >= 0.92


def test_median_interval_of_few_values_says_which_assumption_it_makes():
    assert stats.median_interval([1.0]) == stats.Interval(0.0, math.inf, 0.95, "one value")
    assert stats.median_interval([1.0, 1.1, 1.2]).method == "t"
    assert stats.median_interval([1.0] * 3 + [2.0] * 3).method == "exact"


def test_bootstrap_interval_is_repeatable_and_inside_the_values():
    values = [1.0, 1.2, 1.1, 1.4, 1.3]
    first = stats.bootstrap_interval(values, seed=3)
    assert first == stats.bootstrap_interval(values, seed=3)
    assert min(values) <= first.low <= stats.median(values) <= first.high <= max(values)


@pytest.mark.parametrize("name", ["median", "robust_spread", "median_interval", "bootstrap_interval"])
def test_no_values_have_no_statistic(name):
    with pytest.raises(ValueError, match="values"):
        getattr(stats, name)([])


def test_robust_spread_is_a_standard_deviation_and_ignores_one_wild_value():
    values = np.random.default_rng(1).normal(0, 2, 2000)
    assert stats.robust_spread(values) == pytest.approx(2, rel=0.1)
    assert stats.robust_spread([*values, 1e9]) == pytest.approx(2, rel=0.1)


def test_between_start_spread_is_the_recipes_where_no_side_has_two_starts():
    one = ([1.0, 5.0, 9.0], [0, 0, 0])
    assert stats.moderated_spread([one, one], 0.01) == stats.Spread(0.01, math.inf, 2)


def test_between_start_spread_comes_from_the_samples_where_a_side_has_many_starts():
    rng = np.random.default_rng(5)
    starts = np.repeat(np.arange(40), 4)
    values = rng.normal(0, 0.03, 40)[starts] + rng.normal(0, 0.01, 160)
    spread = stats.moderated_spread([(values.tolist(), starts.tolist())], 0.0)
    assert spread.between == pytest.approx(0.03, rel=0.3)
    assert spread.df == stats.variance.PRIOR_DF + 39


def test_between_start_weight_is_one_over_the_number_of_equal_starts():
    assert stats.between_start_weight([0] * 7) == 1
    assert stats.between_start_weight([0, 1, 2, 3] * 5) == pytest.approx(0.25)


def test_what_is_enough_is_the_fewest_and_none_beyond_reach():
    assert stats.fewest(lambda n: 10 / math.sqrt(n) <= 2.0, 1, 10_000) == 25
    assert stats.fewest(lambda n: 10 / math.sqrt(n) <= 2.0, 30, 10_000) == 30
    assert stats.fewest(lambda n: False, 1, 10_000) is None


def test_effect_size_is_the_share_of_pairs_that_are_larger():
    assert stats.cliffs_delta([3, 4], [1, 2]) == 1
    assert stats.cliffs_delta([1, 3], [2, 2]) == 0


def test_a_few_starts_that_happen_to_agree_do_not_do_away_with_the_recipes_figure():
    agreeing = ([1.0, 2.0, 1.0, 2.0], [0, 0, 1, 1])
    spread = stats.moderated_spread([agreeing], 0.01)
    assert spread.between == pytest.approx(0.01 * math.sqrt(stats.variance.PRIOR_DF / (stats.variance.PRIOR_DF + 1)))


def test_what_the_other_points_show_of_the_starts_counts_but_for_no_more_than_it_may():
    rng = np.random.default_rng(3)
    starts = np.repeat(np.arange(200), 2)
    wide = rng.normal(0, 0.05, 200)[starts] + rng.normal(0, 0.001, 400)
    seen = stats.between_starts([(wide.tolist(), starts.tolist())])
    assert seen.df == 199
    assert math.sqrt(seen.variance) == pytest.approx(0.05, rel=0.1)
    own = ([1.0] * 20, [i // 2 for i in range(20)])
    borrowed = stats.moderated_spread([own], 0.0, seen)
    assert borrowed.df == stats.variance.PRIOR_DF + stats.variance.ELSEWHERE_DF + 9
    assert borrowed.between == pytest.approx(0.05 * math.sqrt(8 / 21), rel=0.1)
    two = ([1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1])
    assert stats.moderated_spread([two], 0.0, seen).df == stats.variance.PRIOR_DF + 1 + 1, (
        "no more than this point's own"
    )


def test_other_points_may_raise_the_figure_of_starts_that_agree_here_by_more_than_the_degrees_they_lend():
    """Starts of two modes fall into the same one here in a quarter of the runs of three; the other points tell."""
    agreeing = ([1.0] * 6, [0, 0, 1, 1, 2, 2])
    seen = stats.Observed(variance=0.01**2, df=6)
    borrowed = stats.moderated_spread([agreeing], 0.0, seen)
    assert borrowed.df == stats.variance.PRIOR_DF + 2 + 2
    assert borrowed.between == pytest.approx(0.01 * math.sqrt(6 / (stats.variance.PRIOR_DF + 6 + 2)))


def test_what_several_starts_are_expected_to_show_may_differ_from_what_is_stated_for_one():
    agreeing = ([1.0, 1.0, 1.0, 1.0], [0, 0, 1, 1])
    expected = stats.moderated_spread([agreeing], 0.001, expected=0.005)
    assert expected.between == pytest.approx(0.005 * math.sqrt(4 / 5))
    one = ([1.0, 1.0], [0, 0])
    assert stats.moderated_spread([one, one], 0.001, expected=0.005).between == 0.001
    apart = ([1.0, 1.0, 1.1, 1.1], [0, 0, 1, 1])
    own = stats.moderated_spread([apart], 0.001, expected=0.005)
    assert (own.df, own.between) == (1, pytest.approx(0.1 / math.sqrt(2))), "a guess far below what is seen is none"
    assert stats.moderated_spread([apart], 0.001).df == stats.variance.PRIOR_DF + 1, "a stated figure is no guess"


def test_other_points_say_nothing_of_a_point_that_has_one_start_a_side():
    one = ([1.0, 5.0, 9.0], [0, 0, 0])
    assert stats.moderated_spread([one, one], 0.01, stats.Observed(1.0, 8)) == stats.Spread(0.01, math.inf, 2)


def test_one_start_shows_no_spread_between_starts():
    assert stats.between_starts([([1.0, 5.0, 9.0], [0, 0, 0])]) == stats.NOTHING


@pytest.mark.parametrize("rounds", [2, 3, 4, 5, 6])
def test_points_that_the_same_starts_move_alike_do_not_make_the_spread_better_known_than_it_is(rounds):
    """Where a start moves all points alike the others only repeat this point's differences, which have rounds - 1 degrees
    of freedom. Two points have the loosest level: a run's 0.004 over four comparisons."""
    differences = np.random.default_rng(rounds).normal(0, 0.03, rounds).repeat(2).tolist()
    side = (differences, np.arange(rounds).repeat(2).tolist())
    spread = stats.seen_spread([side], 0.001, stats.between_starts([side]))
    beyond = sp.t.isf(0.001, spread.df)
    assert sp.t.sf(beyond, rounds - 1) <= 0.005


def test_spread_between_alternating_starts_is_what_is_seen_and_no_less_than_stated():
    side = ([0.0, 0.0, 0.02, 0.02, 0.04, 0.04], [1, 1, 2, 2, 3, 3])
    assert stats.seen_spread([side], 0.001) == stats.Spread(pytest.approx(0.02), 2, 3)
    assert stats.seen_spread([side], 0.05) == stats.Spread(0.05, 2, 3)
    assert stats.seen_spread([([0.0, 0.1], [1, 1])], 0.01) == stats.Spread(0.01, math.inf, 1)


def test_other_points_lend_fewer_degrees_than_there_are_and_never_lower_the_spread():
    side = ([0.0, 0.0, 0.02, 0.02, 0.04, 0.04], [1, 1, 2, 2, 3, 3])
    quiet = stats.seen_spread([side], 0.001, stats.Observed(0.0, 8))
    assert quiet == stats.Spread(pytest.approx(0.02), 3, 3)
    loud = stats.seen_spread([side], 0.001, stats.Observed(0.04**2, 1))
    assert loud == stats.Spread(pytest.approx(math.sqrt((2 * 0.02**2 + 0.04**2) / 3)), 3, 3)
