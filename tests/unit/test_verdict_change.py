"""An A/B names the kind of cost that the new side gained, and names none on unchanged code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from judging import sample

from perfgate.baseline import Bounds
from perfgate.result import Outcome
from perfgate.verdict import Verdict, judge_ab, step_change

STEPS = {1: 6.8, 16: 18.0, 64: 45.0}


def verdicts(slower: Callable[[int, float], float], seed: int, noise: float = 0.01) -> dict[int, Verdict]:
    """An A/B of 6 pairs a point; ``slower``: the new side's step time in ms at C of the old one."""
    rng = np.random.default_rng(seed)
    found = {}
    for c, step in STEPS.items():
        pairs = []
        for old, new in np.exp(rng.normal(0, noise, (6, 2))):
            pairs.append((sample(800 * c / (step * old), c), sample(800 * c / (slower(c, step) * new), c)))
        found[c] = judge_ab(pairs, bounds=Bounds(between_start=0.001), comparisons=6)
    return found


def test_unchanged_code_has_no_cost_to_name() -> None:
    named = 0
    for seed in range(60):
        found = verdicts(lambda c, step: step, seed)
        assert Outcome.REGRESSION not in {v.outcome for v in found.values()}
        told = step_change(found)
        named += told is not None and told.changed
    assert named == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_slower_side_is_told_with_its_kind(seed: int) -> None:
    share, request = (
        step_change(verdicts(lambda c, s: 1.2 * s, seed)),
        step_change(verdicts(lambda c, s: s + 0.2 * c, seed)),
    )
    assert share is not None
    assert request is not None
    assert (share.per_request, request.per_request) == (False, True)
    assert "a share of each step, +" in str(share)


def test_one_point_that_is_surely_slower_is_enough_to_ask_what_it_cost() -> None:
    found = verdicts(lambda c, s: s + (0.5 * c if c == 64 else 0.0), 1)
    assert found[1].outcome is not Outcome.REGRESSION
    assert step_change(found) is not None
