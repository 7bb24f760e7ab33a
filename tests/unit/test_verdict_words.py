"""What a verdict says of noise and losses: figures that a reader can use, however few or wild the samples are."""

import re

import numpy as np
import pytest
from judging import baseline, sample, samples

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
    told = said(judge_ab(pairs(4, 0.23, 0.1, seed=2), bounds=wide))["throughput"]
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
