"""What a verdict says of noise and losses: figures that a reader can use, however few or wild the samples are."""

import re
from dataclasses import replace

import numpy as np
import pytest
from judging import baseline, noise, sample, samples

from perfgate.baseline import Bounds
from perfgate.result import Outcome
from perfgate.verdict import judge, judge_ab


def pairs(count, ratio=1.0, width=0.005, seed=0):
    rng = np.random.default_rng(seed)
    made = [1000 * np.exp(rng.normal(0, width, 2)) for _ in range(count)]
    return [(sample(old), sample(ratio * new)) for old, new in made]


def said(verdict):
    return {m.name: m.why for m in verdict.metrics}


def test_a_loss_of_throughput_is_a_share_of_it_and_never_more_than_all():
    # Bounds as wide as those of a noisy CPU: 85 % of the throughput.
    wide = Bounds(between_start=0.03, absolute={"throughput": 850, "step_time": 3})
    run, known = samples(noise(6, 0.02, level=230, seed=2)), baseline(noise(10, 0.02), bounds=wide)
    told = said(judge(run, known))["throughput"]
    (excluded,) = re.findall(r"a loss of ([\d.]+)% is excluded", told)
    assert 84 < float(excluded) < 87
    told = said(judge_ab(pairs(12, 1.0, 0.05), bounds=Bounds(between_start=0.03)))
    assert re.search(r"a loss of (\S+) is possible", told["throughput"])[1] == "6.1%"
    assert re.search(r"a loss of (\S+) is possible", told["step_time"])[1] == "6.5%"


def test_noise_as_large_as_the_figures_is_said_in_words():
    verdict = judge(samples([1000, 1400]), baseline([2000, 2500]))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "noise alone can more than halve it (41.8 standard errors of 22.37%)" in said(verdict)["throughput"]
    assert "noise alone can more than double it (41.8 standard errors of 22.37%)" in said(verdict)["step_time"]


@pytest.mark.parametrize("seed", range(5))
def test_no_share_is_longer_than_a_reader_can_use(seed):
    verdict = judge_ab(pairs(2, 0.5, 3.0, seed=seed))
    assert [n for n in re.findall(r"\d+(?=\.\d+%|%)", verdict.why) if len(n) > 4] == []


def test_two_pairs_do_not_say_how_many_would_settle_it_but_how_many_show_their_noise():
    verdict = judge_ab(pairs(2), bounds=Bounds(between_start=0.001))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.why.endswith("So few pairs do not show how large their noise is: 5 or more do")
    assert (verdict.samples_needed, verdict.advice) == (5, "--samples 5")


def test_a_baseline_of_two_samples_is_what_is_too_small():
    verdict = judge(samples([1000] * 10), baseline([1000, 1010]))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert (
        "So few samples of the baseline do not show how large their noise is: 5 or more on each side do" in verdict.why
    )
    assert "--samples 5, or record the baseline anew with that many samples" in verdict.advice


def test_noise_that_no_number_of_samples_beats_is_not_laid_on_server_starts():
    verdict = judge_ab(pairs(3, 1.0, 1.5, seed=3), bounds=Bounds(between_start=0.0))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.samples_needed is None
    assert verdict.why.endswith("More than 1000 pairs would be needed: the noise is too large for this question")
    assert verdict.advice == "free the machine of other work and run again"
    alone = judge(samples(noise(3, 0.9, seed=2)), baseline(noise(10, 0.9, seed=3)))
    assert "More than 1000 samples" in alone.why
    assert "--against-commit abc123, whose pairs cancel drift" in alone.advice


@pytest.mark.parametrize(("ratio", "width", "between"), [(0.8, 0.005, 0.0), (1.0, 0.08, 0.001), (1.0, 0.005, 0.03)])
def test_no_ab_is_answered_with_the_advice_to_make_one(ratio, width, between):
    verdict = judge_ab(pairs(12, ratio, width, seed=1), bounds=Bounds(between_start=between))
    assert verdict.outcome in (Outcome.REGRESSION, Outcome.INCONCLUSIVE)
    assert verdict.advice
    assert "--against" not in verdict.advice
    assert "samples would" not in verdict.why


def test_a_profile_of_both_servers_is_not_asked_of_sides_that_take_turns():
    taken = [(sample(1000 + i), sample(700 + i)) for i in range(18)]
    turns = [tuple(replace(s, server_start=i // 3) for s in pair) for i, pair in enumerate(taken)]
    beside, in_turns = judge_ab(taken), judge_ab(turns)
    assert beside.outcome is in_turns.outcome is Outcome.REGRESSION
    assert beside.advice.startswith("--profile, to see where the time went; ")
    assert in_turns.advice == "a loss that is accepted is recorded with --record --reason TEXT"


def test_a_baseline_of_a_dirty_tree_is_run_beside_by_its_commit_and_the_advice_says_what_that_lacks():
    dirty = baseline(noise(10), commit="abc123def456-dirty")
    for run in (noise(10, level=900), noise(4, 0.05, seed=1)):
        advice = judge(samples(run), dirty).advice
        assert "--against-commit abc123def456" in advice
        assert "-dirty" not in advice
        assert advice.endswith("(the baseline was recorded with changes that are in no commit, which that one lacks)")
    assert "no commit" not in judge(samples(noise(10, level=900)), baseline(noise(10))).advice
    assert judge(samples(noise(10, level=1100)), dirty).advice == "keep the gain: --record --reason TEXT"


def test_where_starts_differ_the_advice_is_one_that_can_be_followed():
    stated = Bounds(between_start=0.03)
    verdict = judge(samples(noise(10, seed=1)), baseline(noise(10), bounds=stated))
    assert "starts on each side" in verdict.why
    assert verdict.advice.startswith("--against-commit abc123 --starts 6: both sides in turns")
