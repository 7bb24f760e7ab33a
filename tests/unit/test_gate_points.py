"""From collected samples to a run's result."""

from __future__ import annotations

import pytest

from perfgate import gate, preflight
from perfgate.result import Outcome, PointResult
from perfgate.workload import Plan


def prediction(**facts: int) -> preflight.Prediction:
    (found,) = preflight.predict(preflight.ServerFacts(**facts), [Plan(64, 320, 64, 32)])
    return found


def point(outcome: Outcome) -> PointResult:
    return PointResult(concurrency=64, outcome=outcome, why="judged")


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.IMPROVED, Outcome.NO_BASELINE, Outcome.INCONCLUSIVE])
@pytest.mark.parametrize("facts", [{"max_running_requests": 8}, {"max_total_tokens": 1000}])
def test_a_point_that_the_server_cannot_hold_at_once_never_passes(outcome: Outcome, facts: dict[str, int]) -> None:
    found = gate.never_asked(point(outcome), prediction(**facts))
    assert found.outcome is Outcome.INVALID
    assert "change: " in found.why
    assert found.why.endswith("judged")


def test_a_regression_stays_one_and_says_what_cut_into_it() -> None:
    found = gate.never_asked(point(Outcome.REGRESSION), prediction(max_running_requests=8))
    assert found.outcome is Outcome.REGRESSION
    assert "max_running_requests=8" in found.why


@pytest.mark.parametrize("facts", [{}, {"max_running_requests": 64, "max_total_tokens": 65536}])
def test_a_server_with_room_or_that_does_not_say_changes_nothing(facts: dict[str, int]) -> None:
    assert gate.never_asked(point(Outcome.PASS), prediction(**facts)) == point(Outcome.PASS)
