"""A few slow samples in the baseline, or a few spoilt pairs, do not hide a clear loss, and are named where they do."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from judging import baseline, noise, sample, samples

from perfgate.result import Outcome
from perfgate.stats import below_most, least_below, most_above, mostly_negative, two_sample_shift
from perfgate.verdict import judge, judge_ab
from perfgate.verdict.needed import Needed
from perfgate.verdict.ranks import ROBUST_SHARE, of_two
from perfgate.verdict.words import settles

SPOILT = [700.0, 701.0, *noise(8)]


def run(count, drop=0.2, seed=1):
    return samples(noise(200, level=1000 * (1 - drop), seed=seed)[:count])


def pairs(count, spoilt, drop=0.1):
    rng = np.random.default_rng(2)
    made = [1000 * np.exp(rng.normal(0, 0.005, 2)) for _ in range(count)]
    return [(sample(a * (0.7 if i < spoilt else 1)), sample(b * (1 - drop))) for i, (a, b) in enumerate(made)]


@pytest.mark.parametrize("drop", [0.03, 0.1, 0.2])
@pytest.mark.parametrize("count", [20, 40, 80])
def test_two_slow_samples_of_ten_in_the_baseline_do_not_hide_a_loss(count, drop):
    assert judge(run(count, drop), baseline(SPOILT), comparisons=6).outcome is Outcome.REGRESSION
    assert judge(run(count, 0.0), baseline(SPOILT), comparisons=6).outcome is Outcome.PASS


def test_where_only_the_order_is_missing_the_outlying_samples_are_named_and_so_is_a_number_that_settles_it():
    verdict = judge(run(10), baseline(SPOILT), comparisons=6)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "but 2 of the baseline's samples (700, 701 tok/s) are no better than this run" in verdict.why
    assert "is possible" not in verdict.why
    assert "record the baseline anew" in verdict.advice
    assert judge(run(verdict.samples_needed), baseline(SPOILT), comparisons=6).outcome is Outcome.REGRESSION
    assert judge(run(verdict.samples_needed - 1), baseline(SPOILT), comparisons=6).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("drop", [0.1, 0.15, 0.2])
def test_outliers_are_not_taken_for_noise_that_no_number_of_samples_beats(drop):
    one_of_five = baseline([700.0, *noise(5)[1:]])
    few = judge(run(5, drop), one_of_five, comparisons=6)
    assert few.outcome is Outcome.INCONCLUSIVE
    assert few.samples_needed is not None
    assert judge(run(few.samples_needed, drop), one_of_five, comparisons=6).outcome is Outcome.REGRESSION


def test_a_baseline_that_is_too_spoilt_is_to_be_larger_and_not_the_run_that_is_large_already():
    spoilt = [700.0, 701.0, 702.0, *noise(7)]
    said = [judge(run(count), baseline(spoilt), comparisons=6) for count in (80, 200)]
    assert said[0].samples_needed == said[1].samples_needed < 80
    assert all("43 samples on each side would" in v.why for v in said)


def test_fast_samples_of_the_run_are_named_as_its_own():
    verdict = judge([*run(10), *samples([1020, 1030])], baseline(noise(10)), comparisons=6)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "2 of this run's (1020, 1030 tok/s) are no worse than the baseline" in verdict.why


def test_two_spoilt_pairs_of_twenty_two_do_not_hide_a_loss_and_of_twenty_are_named():
    assert judge_ab(pairs(22, 2), comparisons=6).outcome is Outcome.REGRESSION
    verdict = judge_ab(pairs(20, 2), comparisons=6)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "2 of the pairs say otherwise (+28.1%, +27.3%)" in verdict.why
    assert judge_ab(pairs(verdict.samples_needed, 2), comparisons=6).outcome is Outcome.REGRESSION


def test_a_gain_behind_outlying_samples_is_found_too():
    fast = [1400.0, 1410.0, *noise(8)]
    assert judge(run(20, -0.2), baseline(fast), comparisons=6).outcome is Outcome.IMPROVED


def test_where_no_number_of_this_runs_samples_would_do_the_advice_is_another_baseline():
    assert settles(Needed(None, 41, outlying=True), "samples") == (
        "No number of samples settles it as long as so many say otherwise: about 41 samples on each side would"
    )


@pytest.mark.parametrize(("n", "m"), [(7, 7), (6, 10), (9, 5)])
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.002])
def test_of_all_orders_that_chance_makes_no_more_than_the_level_are_called_worse(n, m, alpha):
    robust = either = 0
    for chosen in combinations(range(n + m), n):
        x, y = [float(i) for i in chosen], [float(i) for i in range(n + m) if i not in chosen]
        robust += below_most(x, y, alpha)
        either += of_two(x, y, x, y, two_sample_shift(x, y, alpha), alpha).worse
    assert robust <= alpha * comb(n + m, n)
    assert either <= alpha * (1 + ROBUST_SHARE) * comb(n + m, n)
    least = least_below(n, m, alpha)
    assert robust == 0 if least is None else robust > 0


def test_the_sign_test_asks_for_what_its_tables_say():
    assert [most_above(n, 0.025) for n in (5, 6, 10, 20)] == [None, 0, 1, 5]
    assert mostly_negative([-1.0] * 18 + [5.0, 5.0], 2.1e-4)
    assert not mostly_negative([-1.0] * 18 + [0.0, 5.0, 5.0], 2.1e-4)
