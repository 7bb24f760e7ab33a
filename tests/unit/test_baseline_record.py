"""Recording: tightens freely, loosens only with a reason, keeps what it replaces, whole or not at all."""

import errno
import json
import os

import pytest
from judging import record_first, sample, samples

from perfgate.baseline import BaselineError, load
from perfgate.baseline.record import append_history
from perfgate.baseline.schema import HISTORY_KEPT, HistoryEntry


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "xeon.json"
    record_first(path)
    return path


def test_a_faster_recording_needs_no_reason_and_keeps_the_old_values(path):
    done = record_first(path, points={16: samples([1100] * 3)}, reason="", recorded_at="2026-12-01", commit="def")
    point = load(path).stored_point(16)
    assert (done.tightened, done.loosened, done.new) == ((16,), (), ())
    assert point.metrics.throughput.median == 1100
    assert point.loosened is None
    assert [(r.throughput, r.commit, r.reason, r.replaced_at) for r in point.replaced] == [
        (1000, "abc", "first", "2026-12-01")
    ]


@pytest.mark.field_case("N04")
@pytest.mark.parametrize("reason", ["", "   "])
def test_a_slower_recording_without_a_reason_is_refused_and_changes_nothing(path, reason):
    before = path.read_bytes()
    with pytest.raises(BaselineError, match=r"C=16 would become looser \(1000 to 999 tok/s.*--reason TEXT"):
        record_first(path, points={16: samples([999] * 3)}, reason=reason)
    assert path.read_bytes() == before


@pytest.mark.field_case("R16")
def test_a_reviewed_loss_moves_the_baseline_with_its_reason_and_the_old_values(path):
    done = record_first(
        path, points={16: samples([970] * 3)}, reason="accuracy fix costs 3 %", recorded_at="2026-12-02"
    )
    file = load(path)
    point = file.stored_point(16)
    assert done.loosened == (16,)
    assert point.replaced[-1].throughput == 1000
    assert point.replaced[-1].replaced_because == "accuracy fix costs 3 %"
    assert file.loosened()[16] == "looser since 2026-12-02 than its best of 1000 tok/s, 12.8 ms: accuracy fix costs 3 %"
    assert file.point(16).loosened == file.loosened()[16]


def test_the_mark_of_a_looser_floor_stands_until_a_better_value_replaces_it(path):
    record_first(path, points={16: samples([950] * 3)}, reason="slow driver")
    record_first(path, points={16: samples([980] * 3)}, reason="")
    assert "best of 1000 tok/s, 12.8 ms: slow driver" in load(path).loosened()[16]
    record_first(path, points={16: samples([1001] * 3)}, reason="")
    assert load(path).loosened() == {}
    assert [r.throughput for r in load(path).stored_point(16).replaced] == [1000, 950, 980]


def test_a_slower_step_at_a_higher_throughput_is_looser(path):
    with pytest.raises(BaselineError, match="looser"):
        record_first(path, points={16: samples([1100] * 3, median_tpot_ms=13.0)}, reason="")


STEADY = [1000 + e for e in (-1, 0, 1, -0.5, 0.5, 0, 0.2, -0.2, 0.1, -0.1)]
WIDE = [1001 + e for e in (-30, -20, -15, -10, 0, 0.1, 10, 15, 20, 30)]


@pytest.mark.parametrize("looser", [WIDE, [1001] * 3])
def test_a_better_median_with_a_looser_floor_needs_a_reason_and_is_listed(tmp_path, looser):
    path = tmp_path / "steady.json"
    record_first(path, points={16: samples(STEADY)})
    before = path.read_bytes()
    with pytest.raises(BaselineError, match=r"looser \(1000 to 1001.* tok/s, .*, floor 997.5 to 98"):
        record_first(path, points={16: samples(looser)}, reason="")
    assert path.read_bytes() == before
    done = record_first(path, points={16: samples(looser)}, reason="a noisier host", recorded_at="2026-12-02")
    assert (done.loosened, done.tightened) == ((16,), ())
    told = "looser since 2026-12-02 than its best of 997.5 tok/s, 12.832 ms as floors: a noisier host"
    assert load(path).loosened() == {16: told}
    record_first(path, points={16: samples([v + 2 for v in STEADY])}, reason="")
    assert load(path).loosened() == {}


def test_a_mark_from_before_floors_were_kept_stands_until_a_better_value(path):
    record_first(path, points={16: samples([950] * 3)}, reason="slow driver")
    content = json.loads(path.read_text())
    del content["points"]["16"]["loosened"]["floors"]
    path.write_text(json.dumps(content))
    assert "best of 1000 tok/s, 12.8 ms: slow driver" in load(path).loosened()[16]
    record_first(path, points={16: samples([980] * 3)}, reason="")
    assert "best of 1000 tok/s, 12.8 ms: slow driver" in load(path).loosened()[16]
    record_first(path, points={16: samples([1001] * 3)}, reason="")
    assert load(path).loosened() == {}


def test_losing_a_metric_is_looser(path):
    with pytest.raises(BaselineError, match="looser"):
        record_first(path, points={16: samples([1100] * 3, median_tpot_ms=None)}, reason="")


def test_points_that_were_not_measured_stay_as_they_are(path):
    before = load(path).stored_point(16)
    done = record_first(path, points={1: samples([100] * 3, 1)})
    assert done.new == (1,)
    assert load(path).stored_point(16) == before
    assert load(path).concurrencies == (1, 16)


@pytest.mark.parametrize(
    "bad",
    [[], [sample(exit_code=1)], [sample(), sample(exit_code=-9)], [sample(completed=0)], [sample(float("nan"))]],
)
def test_a_point_with_anything_but_valid_samples_is_not_recorded(path, bad):
    before = path.read_bytes()
    with pytest.raises(BaselineError, match="C=16"):
        record_first(path, points={16: bad})
    assert path.read_bytes() == before


def test_a_run_that_measured_nothing_records_nothing(tmp_path):
    with pytest.raises(BaselineError, match="nothing was measured"):
        record_first(tmp_path / "new.json", points={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", [{"recipe": "v4mini"}, {"hardware": "h200"}])
def test_another_recipes_or_machines_file_is_not_overwritten(path, other):
    with pytest.raises(BaselineError, match="holds cpu-tiny on xeon"):
        record_first(path, **other)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_whole_and_nothing_beside_it(path, monkeypatch, call):
    before = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(BaselineError, match=r"xeon\.json: cannot be written \(No space left on device\)"):
        record_first(path, points={16: samples([1100] * 3)})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["xeon.json"]


def test_two_recordings_at_once_do_not_lose_one_of_them(path, monkeypatch):
    real = os.fsync

    def meanwhile(handle):
        monkeypatch.setattr(os, "fsync", real)
        record_first(path, points={64: samples([3000] * 3, 64)})
        real(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(BaselineError, match="changed by somebody else"):
        record_first(path, points={16: samples([1100] * 3)})
    assert load(path).concurrencies == (16, 64)


def test_a_broken_old_file_is_not_overwritten(path):
    path.write_text("{")
    with pytest.raises(BaselineError, match="line 1"):
        record_first(path)
    assert path.read_text() == "{"


def test_a_new_fingerprint_is_noted_beside_what_it_replaced(path):
    record_first(path, points={16: samples([1100] * 3)}, fingerprint={"cpu": "xeon", "torch": "2.11"})
    assert load(path).stored_point(16).replaced[-1].changed_fingerprint == ["torch: absent -> '2.11'"]


def test_history_grows_by_run_is_kept_short_and_moves_no_floor(path):
    floor = load(path).point(16)
    for i in range(HISTORY_KEPT + 3):
        append_history(
            path, {16: HistoryEntry(date=f"day {i}", throughput=1000 + i), 64: HistoryEntry(date="x", throughput=1)}
        )
    point = load(path).stored_point(16)
    assert len(point.history) == HISTORY_KEPT
    assert point.history[-1].throughput == 1000 + HISTORY_KEPT + 2
    assert load(path).point(16) == floor


def test_history_survives_a_new_recording(path):
    append_history(path, {16: HistoryEntry(date="d", throughput=1000)})
    record_first(path, points={16: samples([1100] * 3)})
    assert [e.date for e in load(path).stored_point(16).history] == ["2026-11-29", "d", "2026-11-29"]
