"""From collected samples to a run's result."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.test_verdict_elsewhere import measured

from perfgate import campaign, gate, preflight, recipe
from perfgate.baseline import load, record
from perfgate.result import MetricResult, Outcome, PointResult, SampleRow
from perfgate.sampler import Taken
from perfgate.suspects import suspects
from perfgate.workload import Plan
from perfgate.yardstick import Yardstick


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


def moved(change: float) -> list[PointResult]:
    made = []
    for c in (1, 16, 64):
        rows = [
            SampleRow(index=0, asked=5, counted=True, clock_mhz=1755, clock_low_mhz=1695, throttle=["sw_power_cap"])
        ]
        row = MetricResult(
            name="throughput", unit="tok/s", higher_is_better=True, change=change, outcome=Outcome.REGRESSION
        )
        made.append(PointResult(concurrency=c, outcome=Outcome.REGRESSION, why="", metrics=[row], samples=rows))
    return made


def test_a_uniform_shift_names_the_fingerprint_and_the_clocks_to_look_at() -> None:
    tiny = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
    here = {"hardware": {"gpu_driver": "580.159", "gpu_max_sm_mhz": 1980}, "software": {"torch": "2.11.0"}}
    data = campaign.new(tiny, campaign.Order((1, 16, 64), 3, 6, 0))
    rule = Yardstick(tiny, None, here, False, 3, 6, 3)
    done = gate.result(data, rule, None, points=moved(-0.1), started_at=0.0, seconds=1.0)
    assert "environment" in done.why
    assert "fingerprint is the baseline's, with gpu_driver 580.159, torch 2.11.0" in done.why
    assert "SM clock was 1695 to 1755 MHz of at most 1980" in done.why
    assert "throttled by sw_power_cap" in done.why
    beside = gate.result(data, rule, None, points=moved(-0.1), started_at=0.0, seconds=1.0, judged_by="ab")
    assert "SM clock" not in beside.why


def test_fields_of_the_fingerprint_that_differ_are_named_before_those_that_do_not() -> None:
    assert suspects({"hardware": {"gpu_driver": "580"}}, ["hardware.gpu_driver: 570 -> 580"], []) == {
        "fingerprint": "differs in hardware.gpu_driver: 570 -> 580"
    }
    assert suspects({}, [], []) == {}


def test_the_run_judges_each_point_with_what_its_other_points_show_of_the_starts(tmp_path: Path) -> None:
    tiny = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
    points = [p.model_copy(update={"noise": recipe.Noise()}) for p in tiny.points]
    quiet = tiny.bounds.model_copy(update={"between_start_rel_sd": 0.0005})
    tiny = tiny.model_copy(update={"points": points, "bounds": quiet})
    seeds = {1: 576, 16: 76, 64: 577}
    old = {c: measured(seed + (c == 16), 0.004, concurrency=c)[0] for c, seed in seeds.items()}
    path = tmp_path / "h.json"
    record(path, recipe="r", hardware="h", points=old, fingerprint={}, recorded_at="2026-11-29", reason="first")
    rule = Yardstick(tiny, load(path), {}, False, 20, 20, 3)
    run = {1: old[1], 16: measured(76, 0.004, level=986)[0], 64: old[64]}
    assert rule.judge(16, run[16]).outcome is Outcome.INCONCLUSIVE
    data = campaign.new(tiny, campaign.Order((1, 16, 64), 20, 20, 0))
    for concurrency, samples in run.items():
        data.points[concurrency].attempts = [Taken(tiny.plan(concurrency), sample) for sample in samples]
    done = gate.result(data, rule, None, started_at=0.0, seconds=1.0)
    assert {p.concurrency: p.outcome for p in done.points}[16] is Outcome.REGRESSION
    assert not rule.enough(16, run[16])
    assert rule.enough(16, run[16], data.samples())
