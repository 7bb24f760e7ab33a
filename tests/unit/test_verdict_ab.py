"""A/B by paired ratios, and sampling until the answer is clear."""

import numpy as np
import pytest
from judging import baseline, noise, sample, samples

from perfgate.baseline import Bounds
from perfgate.result import Outcome
from perfgate.verdict import judge, judge_ab, levels, next_step, rounds_elsewhere
from perfgate.verdict.levels import FALSE_ALARMS_A_RUN, MISSED


def pairs(count, ratio=1.0, width=0.005, drift=0.26, seed=0, starts=1, start_effect=0.0):
    rng = np.random.default_rng(seed)
    effects = rng.normal(0, start_effect, (starts, 2))
    rows = []
    for i in range(count):
        common = 1000 * (1 - drift * i / count)
        old, new = np.exp(rng.normal(0, width, 2) + effects[i % starts])
        rows.append(
            (sample(common * old, server_start=i % starts), sample(common * ratio * new, server_start=i % starts))
        )
    return rows


@pytest.mark.field_case("N07", "N13")
@pytest.mark.parametrize(
    ("ratio", "outcome"), [(1.0, Outcome.PASS), (0.97, Outcome.REGRESSION), (1.03, Outcome.IMPROVED)]
)
def test_pairs_are_judged_by_their_ratio_while_the_machine_drifts_by_a_quarter(ratio, outcome):
    verdict = judge_ab(pairs(20, ratio))
    assert verdict.outcome is outcome
    assert verdict.judged_by == "ab"
    assert verdict.metrics[0].change == pytest.approx(ratio - 1, abs=0.006)
    unpaired = judge([b for _, b in pairs(20, ratio)], baseline([a.output_throughput for a, _ in pairs(20, ratio)]))
    assert unpaired.outcome is Outcome.INCONCLUSIVE


def test_few_pairs_still_find_ten_percent():
    assert judge_ab(pairs(6, 0.9)).outcome is Outcome.REGRESSION


def test_one_pair_is_not_enough_for_a_few_percent():
    assert judge_ab(pairs(1, 0.97)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.field_case("N06")
def test_two_servers_start_effects_do_not_cancel_and_alternating_starts_show_them():
    run = pairs(20, 1.0, 0.001, starts=5, start_effect=0.02, seed=3)
    assert judge_ab(run).outcome is Outcome.INCONCLUSIVE
    assert judge_ab(pairs(20, 0.97, 0.001), bounds=Bounds(between_start=0.02)).outcome is Outcome.INCONCLUSIVE
    unstated = Bounds(between_start=0.001, unstated=0.01)
    assert judge_ab(pairs(20, 0.97, 0.001), bounds=unstated).outcome is Outcome.INCONCLUSIVE
    assert judge_ab(pairs(20, 0.90, 0.001), bounds=unstated).outcome is Outcome.REGRESSION
    assert judge_ab(pairs(20, 1.0, 0.001), bounds=unstated).outcome is Outcome.PASS


def in_turns(rounds=4, each=3, ratio=1.0, spread=0.01, width=0.002, seed=0):
    """Pairs of the same round of starts, whose two servers differ by a start effect of their own."""
    rng = np.random.default_rng(seed)
    rows = []
    for start in range(1, rounds + 1):
        effect = rng.normal(0, spread, 2)
        for _ in range(each):
            old, new = np.exp(effect + rng.normal(0, width, 2))
            rows.append((sample(1000 * old, server_start=start), sample(1000 * ratio * new, server_start=start)))
    return rows


@pytest.mark.field_case("N06")
def test_starts_that_alternate_cry_no_wolf_where_the_stated_spread_is_a_tenth_of_the_real():
    stated = Bounds(between_start=0.001)
    found = [judge_ab(in_turns(3, seed=i), bounds=stated, comparisons=2).outcome for i in range(200)]
    assert found.count(Outcome.REGRESSION) + found.count(Outcome.IMPROVED) <= 1


def test_what_the_runs_other_points_show_of_the_starts_settles_a_loss_sooner():
    others = rounds_elsewhere([in_turns(3, spread=0.003, seed=i) for i in (50, 51)])
    alone = [judge_ab(in_turns(3, ratio=0.95, spread=0.003, seed=i)).outcome for i in range(40)]
    helped = [judge_ab(in_turns(3, ratio=0.95, spread=0.003, seed=i), elsewhere=others).outcome for i in range(40)]
    assert helped.count(Outcome.REGRESSION) > alone.count(Outcome.REGRESSION) + 10


def test_the_verdict_names_the_starts_and_how_many_would_settle_it():
    verdict = judge_ab(in_turns(3, spread=0.006, seed=3))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "9 pairs of 3 starts of each side" in verdict.why
    assert "starts of each side would settle it" in verdict.why
    assert "--starts" in verdict.advice


@pytest.mark.parametrize("bad", [sample(exit_code=1), sample(completed=0), sample(float("nan")), sample(0.0)])
def test_a_bad_sample_on_either_side_never_passes_and_names_the_side(bad):
    good = pairs(10)
    for side, broken in (("old", [(bad, sample()), *good]), ("new", [*good, (sample(), bad)])):
        verdict = judge_ab(broken)
        assert verdict.outcome is Outcome.INVALID
        assert verdict.why.startswith(side)
    assert judge_ab([]).outcome is Outcome.MISSING


def test_different_accept_lengths_refuse_the_ab():
    run = [(sample(accept_length=5.12), sample(accept_length=3.87)) for _ in range(10)]
    assert judge_ab(run).outcome is Outcome.INVALID


@pytest.mark.parametrize(("minimum", "maximum"), [(3, 20), (5, 6), (1, 2), (5, 5)])
def test_the_looks_together_spend_no_more_error_than_one(minimum, maximum):
    spent = [levels(n, minimum, maximum, comparisons=6) for n in range(minimum, maximum + 1)]
    assert sum(level.alarm for level in spent) <= FALSE_ALARMS_A_RUN / 6 * (1 + 1e-9)
    assert sum(level.miss for level in spent) <= MISSED * (1 + 1e-9)


def test_sampling_stops_early_when_clear_and_goes_on_when_not():
    base = baseline(noise(20, 0.005))
    assert next_step(samples(noise(4)), base, 5, 20) == "more"
    assert next_step(samples(noise(5, 0.003, seed=1)), base, 5, 20) == "stop"
    assert next_step(samples(noise(5, 0.003, level=900, seed=1)), base, 5, 20) == "stop"
    assert next_step(samples(noise(5, 0.003, level=990, seed=1)), base, 5, 20) == "more"
    assert next_step(samples(noise(20, 0.003, level=990, seed=1)), base, 5, 20) == "stop"


def test_sampling_goes_to_the_maximum_while_recording_and_stops_where_nothing_can_be_settled():
    run = samples(noise(5))
    assert next_step(run, None, 5, 20, recording=True) == "more"
    assert next_step(run, None, 5, 20) == "stop"
    assert next_step([sample(exit_code=1)] * 5, baseline(noise(5)), 5, 20) == "stop"


@pytest.mark.parametrize(("minimum", "maximum"), [(0, 5), (6, 5)])
def test_a_plan_that_cannot_be_is_refused(minimum, maximum):
    with pytest.raises(ValueError, match="minimum"):
        next_step([], None, minimum, maximum)
