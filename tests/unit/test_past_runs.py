"""Runs that leave no baseline: kept on this machine, read back where they compare, and what they show together."""

import json
from pathlib import Path

import pytest
from unit.judging import record_first, samples

from perfgate import gate, local_history, past_runs, recipe
from perfgate.baseline import load, record
from perfgate.baseline.schema import HistoryEntry
from perfgate.result import MetricResult, Outcome, PointResult
from perfgate.yardstick import Yardstick

CPU_TINY = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")


def point(outcome=Outcome.PASS, throughput=1000.0, concurrency=16):
    metrics = [
        MetricResult(name="throughput", unit="tok/s", higher_is_better=True, value=throughput, outcome=outcome),
        MetricResult(name="step_time", unit="ms", higher_is_better=False, value=16000 / throughput, outcome=outcome),
    ]
    return PointResult(concurrency=concurrency, outcome=outcome, why="", metrics=metrics)


def runs(levels, metric_noise=0.002):
    wobble = [1 + metric_noise * (-1) ** i for i in range(len(levels))]
    return [
        HistoryEntry(
            date=f"2026-11-{i // 24 + 1:02}T{i % 24:02}:00Z", commit=f"c{i}", throughput=v * w, step_time=16000 / v / w
        )
        for i, (v, w) in enumerate(zip(levels, wobble, strict=True))
    ]


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.IMPROVED])
def test_a_run_that_lets_a_change_through_is_remembered(outcome):
    found = past_runs.entries([point(outcome)], "2026-11-30T10:00Z", "abc")
    assert found[16] == HistoryEntry(
        date="2026-11-30T10:00Z", commit="abc", throughput=1000, step_time=16, outcome=outcome.value
    )


@pytest.mark.parametrize("outcome", [o for o in Outcome if not o.passes])
def test_a_point_that_fails_is_no_state_that_was_merged(outcome):
    assert past_runs.entries([point(outcome)], "d", None) == {}


def test_what_was_appended_is_read_back_oldest_first(tmp_path):
    path = tmp_path / "r" / "h.jsonl"
    for i in range(3):
        assert local_history.append(path, "s", {16: runs([1000 + i])[0]}) == []
    found, notes = local_history.read(path, "s")
    assert [round(e.throughput) for e in found[16]] == [1002, 1003, 1004]
    assert notes == []


def test_runs_of_another_state_are_not_read_back(tmp_path):
    path = tmp_path / "h.jsonl"
    machine = {"software": {"sglang": "1"}}
    here = local_history.state(CPU_TINY, machine)
    local_history.append(path, here, {16: runs([1000])[0]})
    newer = local_history.state(CPU_TINY, {"software": {"sglang": "2"}})
    work = CPU_TINY.workload.model_copy(update={"output_len": 16})
    shorter = local_history.state(CPU_TINY.model_copy(update={"workload": work}), machine)
    assert len({here, newer, shorter}) == 3
    assert local_history.read(path, newer)[0] == local_history.read(path, shorter)[0] == {}
    assert len(local_history.read(path, here)[0][16]) == 1


def test_a_damaged_line_costs_that_run_alone_and_is_told(tmp_path):
    path = tmp_path / "h.jsonl"
    local_history.append(path, "s", {16: runs([1000])[0]})
    with path.open("a") as file:
        file.write('{"state": "s", "poi\n[]\n')
    local_history.append(path, "s", {16: runs([1001])[0]})
    found, notes = local_history.read(path, "s")
    assert len(found[16]) == 2
    assert notes == ["this machine's history h.jsonl has 2 lines that cannot be read"]


def test_a_folder_that_cannot_be_written_is_a_note_and_no_failure(tmp_path):
    (tmp_path / "file").write_text("")
    (note,) = local_history.append(tmp_path / "file" / "h.jsonl", "s", {16: runs([1000])[0]})
    assert "not in this machine's history" in note


def test_no_history_is_no_news(tmp_path):
    assert local_history.read(tmp_path / "none.jsonl", "s") == ({}, [])
    local_history.append(tmp_path / "none.jsonl", "s", {})
    assert not (tmp_path / "none.jsonl").exists()


def test_recording_appends_what_it_records_and_keeps_what_it_replaces(tmp_path):
    path = tmp_path / "h.json"
    record_first(path)
    record_first(path, points={16: samples([1100, 1110, 1090])}, recorded_at="2026-11-30", commit="def")
    stored = load(path).stored_point(16)
    assert [(e.date, e.commit, e.throughput, e.outcome) for e in stored.history] == [
        ("2026-11-29", "abc", 1000, "recorded"),
        ("2026-11-30", "def", 1100, "recorded"),
    ]
    assert stored.replaced[-1].throughput == 1000


def test_recorded_and_local_runs_make_one_history_with_the_present_run_last(tmp_path):
    path = tmp_path / "h.json"
    record_first(path, recorded_at="2026-11-01T05:30Z")
    local = {16: runs([1000] * 8)}
    own = runs([990])[0]
    rows = past_runs.merged(load(path), local, {16: own})[16]
    assert [r.date for r in rows[5:7]] == ["2026-11-01T05:00Z", "2026-11-01T05:30Z"]
    assert rows[-1] is own
    assert len(rows) == 10


def test_slow_drift_below_each_runs_threshold_is_said_with_its_runs():
    rows = runs([1000 * (1 - 0.001 * i) for i in range(30)])
    said = past_runs.findings({16: rows})
    assert any("C=16: throughput" in s and ("drifted" in s or "worse level" in s) for s in said)
    assert any("C=16: step time" in s for s in said)
    assert all("c0" in s or "between" in s for s in said)


def test_a_drift_without_any_step_is_said_as_well():
    # 0.8 % in all: any two levels in it are closer together than what makes a change point.
    said = past_runs.findings({16: runs([1000 * (1 - 0.008 * i / 30) for i in range(30)], metric_noise=0.0005)})
    assert len(said) == 2
    assert all("has drifted by" in s and "over 30 runs since 2026-11-01T00:00Z (c0)" in s for s in said)
    better = past_runs.findings({16: runs([1000 * (1 + 0.008 * i / 30) for i in range(30)], metric_noise=0.0005)})
    assert better == []


def test_a_step_below_each_runs_threshold_names_the_commits_around_it():
    said = past_runs.findings({16: runs([1000] * 12 + [988] * 12)})
    assert len(said) == 2
    assert "(c11)" in said[0]
    assert "(c12)" in said[0]
    assert "-1." in said[0]


def test_a_level_that_was_regained_is_no_news_and_one_that_was_regained_in_part_is():
    for again in (1000, 1050):
        assert past_runs.findings({16: runs([1000] * 10 + [950] * 6 + [again] * 14)}) == []
    said = past_runs.findings({16: runs([1000] * 10 + [950] * 8 + [970] * 12)})
    assert "C=16: throughput has been at a worse level (-3.0%) since between 2026-11-01T09:00Z (c9) and" in said[0]
    twice = past_runs.findings({16: runs([1000] * 10 + [950] * 8 + [900] * 12)})
    assert "(-5.3%) since between 2026-11-01T17:00Z (c17)" in twice[0]


@pytest.mark.parametrize("levels", [[1000] * 30, [1000] * 12 + [1012] * 12, [1000] * 5])
def test_a_quiet_a_short_and_a_better_history_say_nothing(levels):
    assert past_runs.findings({16: runs(levels)}) == []


def test_a_run_result_carries_its_history_and_what_it_shows():
    drifting = {16: runs([1000 * (1 - 0.001 * i) for i in range(30)])}
    rule = Yardstick(CPU_TINY, None, {}, False, 3, 6, 3, past=drifting)
    from perfgate import campaign

    data = campaign.new(CPU_TINY, campaign.Order((16,), 3, 6, 0))
    done = gate.result(data, rule, None, points=[point(throughput=969)], started_at=1796000000.0, seconds=1.0)
    assert [r["median"] for r in done.extra["history"]["16"]][-1] == 969
    assert len(done.extra["history"]["16"]) == 31
    assert any("C=16: throughput" in note for note in done.notes)
    beside = gate.result(
        data, rule, None, points=[point(throughput=969)], started_at=1796000000.0, seconds=1.0, judged_by="ab"
    )
    assert len(beside.extra["history"]["16"]) == 30


def test_the_file_is_plain_json_lines(tmp_path):
    path = tmp_path / "h.jsonl"
    local_history.append(path, "s", {16: runs([1000])[0], 1: runs([100])[0]})
    (line,) = path.read_text().splitlines()
    assert sorted(json.loads(line)["points"]) == ["1", "16"]


def test_recording_again_keeps_a_drift_over_recordings_visible(tmp_path):
    path = tmp_path / "h.json"
    for i in range(12):
        values = [1000 * (1 - 0.004 * i) * (1 + 0.0005 * (-1) ** i)] * 3
        record(
            path,
            recipe="cpu-tiny",
            hardware="xeon",
            points={16: samples(values)},
            fingerprint={},
            recorded_at=f"2026-11-{i + 1:02}",
            reason="a little looser each time",
        )
    assert past_runs.findings(past_runs.merged(load(path), {}, {}))
