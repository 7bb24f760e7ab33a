"""What a run leaves on a disk that takes no more: an error that tells the verdict, and never a lost measurement."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from judging import noise, samples
from perf import test_gate

from perfgate import baseline, campaign, gate, profiles, recipe, report, session
from perfgate.result import CheckResult, Outcome, PointResult, RunResult
from perfgate.sampler import Taken
from perfgate.server import ServerError
from perfgate.yardstick import Yardstick


def done(**changes: Any) -> RunResult:
    point = PointResult(concurrency=16, outcome=Outcome.PASS, why="at the floor")
    fields = {
        "recipe": "r",
        "outcome": Outcome.PASS,
        "why": "1 of 1",
        "judged_by": "smoke",
        "started_at": 0,
        "seconds": 1,
    }
    return RunResult(**{**fields, "points": [point], **changes})


def full(*unused: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_report_that_cannot_be_written_is_one_error_with_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "save", full)
    with pytest.raises(ServerError, match=r"No space left on device.*the verdict was PASS"):
        session.save(done(), tmp_path)


@pytest.mark.parametrize("report_too", [False, True])
def test_a_baseline_that_cannot_be_written_is_told_after_the_results_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report_too: bool
) -> None:
    def refuse(*unused: object) -> RunResult:
        raise baseline.BaselineError("b.json: cannot be written")

    class Run:
        data = profiles = None

        def yardstick(self) -> None:
            return None

    monkeypatch.setattr(session, "_record", refuse)
    if report_too:
        monkeypatch.setattr(report, "save", full)
    options = type("O", (), {"report": tmp_path})()
    with pytest.raises(baseline.BaselineError, match=r"b\.json"):
        session._recorded(done(), Run(), options)  # type: ignore[arg-type]
    assert (tmp_path / "result.json").exists() is not report_too
    if not report_too:
        assert "nothing was recorded" in (tmp_path / "result.json").read_text()


def test_a_first_recording_says_what_it_recorded_and_asks_for_no_other(tmp_path: Path) -> None:
    tiny = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
    machine = {"hardware": {"cpu": "x", "cpus": 2}, "software": {}, "server": {}}
    rule = Yardstick(tiny, None, machine, recording=True, samples=3, max_samples=3, points=3)
    data = campaign.new(tiny, campaign.Order((1, 16, 64), 3, 3, 0))
    for concurrency, point in data.points.items():
        point.attempts = [Taken(point.plan, one) for one in samples(noise(3), concurrency)]
    measured = gate.result(data, rule, None, started_at=0.0, seconds=1.0)
    options = type("O", (), {"baselines": tmp_path, "recipe": tiny, "reason": "first"})()
    made = session._record(measured, data, rule, options, profiles.Profiles())
    assert made.outcome is Outcome.NO_BASELINE
    assert made.why == "recorded 3 of 3 points; there was nothing to compare them with"
    assert [p.advice for p in made.points] == ["", "", ""]
    assert list((tmp_path / "cpu-tiny").glob("*.json"))


@pytest.mark.parametrize("name", ["environment", "graph memory", "a check that comes later"])
def test_no_check_fails_without_a_test_that_fails_with_it(name: str) -> None:
    good, bad = (CheckResult(name=name, outcome=o, why="because") for o in (Outcome.PASS, Outcome.INVALID))
    test_gate.test_every_other_check_of_the_run_passes(done(checks=[good]))
    with pytest.raises(pytest.fail.Exception, match="because"):
        test_gate.test_every_other_check_of_the_run_passes(done(checks=[bad]))
