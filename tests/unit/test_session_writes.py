"""What a run leaves on a disk that takes no more: an error that tells the verdict, and never a lost measurement."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path
from typing import Any

import pytest
from judging import noise, samples
from perf import test_gate

from perfgate import baseline, campaign, checks, gate, preflight, profiles, recipe, report, session
from perfgate.result import CheckResult, Outcome, PointResult, RunResult
from perfgate.sampler import Taken
from perfgate.server import ServerError
from perfgate.workload import Sample
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


ATTACHED = checks.ServerFacts(owned=False)


def recorded(
    folder: Path, taken: dict[int, list[Sample]], facts: checks.ServerFacts = ATTACHED, **bounds: float
) -> tuple[RunResult, baseline.BaselineFile | None]:
    """A first recording of cpu-tiny's points, and the file that it left."""
    tiny = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
    own = tiny.bounds.model_copy(update={"between_start_rel_sd": 0.001, **bounds})
    tiny = tiny.model_copy(update={"bounds": own})
    machine = {"hardware": {"cpu": "x", "cpus": 2}, "software": {}, "server": {}}
    rule = Yardstick(tiny, None, machine, recording=True, samples=3, max_samples=3, points=3)
    data = campaign.new(tiny, campaign.Order((1, 16, 64), 3, 3, 0))
    for concurrency, point in data.points.items():
        point.attempts = [Taken(point.plan, one) for one in taken[concurrency]]
    measured = gate.result(data, rule, facts, started_at=0.0, seconds=1.0)
    options = type("O", (), {"baselines": folder, "recipe": tiny, "reason": "first"})()
    made = session._record(measured, data, rule, options, profiles.Profiles())
    files = list((folder / "cpu-tiny").glob("*.json"))
    return made, baseline.load(files[0]) if files else None


def three(**changes: Any) -> dict[int, list[Sample]]:
    return {c: samples(noise(3), c, **changes) for c in (1, 16, 64)}


def test_a_first_recording_says_what_it_recorded_and_asks_for_no_other(tmp_path: Path) -> None:
    made, file = recorded(tmp_path, three())
    assert made.outcome is Outcome.NO_BASELINE
    assert made.why == "recorded 3 of 3 points; there was nothing to compare them with"
    assert [p.advice for p in made.points] == ["", "", ""]
    assert file is not None


def test_points_that_break_a_law_are_not_recorded(tmp_path: Path) -> None:
    # 1.6 of what their step times allow, by Little's law.
    impossible = {
        c: [dataclasses.replace(s, median_tpot_ms=2 * s.median_tpot_ms) for s in taken] for c, taken in three().items()
    }
    made, file = recorded(tmp_path, impossible)
    assert file is None
    assert made.outcome is Outcome.INVALID
    assert {p.outcome for p in made.points} == {Outcome.INVALID}
    assert "more than its own step time allows" in made.points[0].why
    assert made.notes[-1] == "nothing was recorded: no point has valid samples"


def test_the_points_that_obey_the_laws_are_recorded_beside_those_that_do_not(tmp_path: Path) -> None:
    falling = three() | {64: samples(noise(3, level=9000), 64)}
    made, file = recorded(tmp_path, falling)
    assert {p.concurrency: p.outcome for p in made.points} == {
        1: Outcome.NO_BASELINE,
        16: Outcome.INVALID,
        64: Outcome.INVALID,
    }
    assert file is not None
    assert list(file.concurrencies) == [1]
    assert made.outcome is Outcome.INVALID
    assert {*made.extra["history"]} == {"1"}
    assert len(made.extra["scaling"]["points"]) == 3


def test_a_server_that_was_not_started_as_the_recipe_says_is_not_recorded(tmp_path: Path) -> None:
    spoilt = dataclasses.replace(ATTACHED, environ={"CUDA_LAUNCH_BLOCKING": "1"})
    made, file = recorded(tmp_path, three(), spoilt)
    assert file is None
    assert made.outcome is Outcome.INVALID
    assert made.notes[-1].startswith("nothing was recorded: check environment: ")


def test_a_point_without_a_captured_graph_is_not_recorded(tmp_path: Path) -> None:
    few = dataclasses.replace(ATTACHED, capacity=preflight.ServerFacts(graph_batch_sizes=(1, 2, 4, 8, 16, 32)))
    made, file = recorded(tmp_path, three(), few)
    assert file is not None
    assert list(file.concurrencies) == [1, 16]
    assert made.outcome is Outcome.INVALID


def test_a_recording_that_breaks_a_bound_says_so_in_its_first_line(tmp_path: Path) -> None:
    made, file = recorded(tmp_path, three(), max_b_ms=0.1)
    assert made.outcome is Outcome.REGRESSION
    assert made.why.startswith("check law: bound: b = 0.799")
    assert file is not None
    assert list(file.concurrencies) == [1, 16, 64]


@pytest.mark.parametrize("name", ["environment", "graph memory", "a check that comes later"])
def test_no_check_fails_without_a_test_that_fails_with_it(name: str) -> None:
    good, bad = (CheckResult(name=name, outcome=o, why="because") for o in (Outcome.PASS, Outcome.INVALID))
    test_gate.test_every_other_check_of_the_run_passes(done(checks=[good]))
    with pytest.raises(pytest.fail.Exception, match="because"):
        test_gate.test_every_other_check_of_the_run_passes(done(checks=[bad]))
