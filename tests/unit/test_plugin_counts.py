"""The counters: kept apart by capture and second, written whole and cheaply."""

from __future__ import annotations

import json
import os
import time

import pytest
from dsv4_kernels.sglang_plugin import counts as module
from dsv4_kernels.sglang_plugin.counts import Counts


class Switch:
    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value


def test_captured_calls_are_kept_by_batch_size_and_eager_ones_by_second():
    capturing, clock = Switch(True), Switch(100.9)
    counts = Counts(None, {"arch": "sm_90"}, capturing, clock)
    for rows in (1, 1, 64):
        counts.note("sparse_mla", rows)
    capturing.value = False
    counts.note("sparse_mla", 7)
    clock.value = 102.0
    counts.note("sparse_mla", 7)
    document = counts.document()
    assert document["arch"] == "sm_90"
    assert document["pid"] == os.getpid()
    assert document["calls"]["sparse_mla"] == {
        "capturing": {"1": 2, "64": 1},
        "eager_by_second": {"100": 1, "102": 1},
        "eager_before": 0,
        "prefill": 0,
    }


def test_calls_of_a_batch_that_decodes_nothing_are_kept_apart_captured_or_not():
    capturing = Switch(False)
    counts = Counts(None, {}, capturing, Switch(100.0))
    counts.note("sparse_mla", 1)
    with counts.decoding_nothing():
        counts.note("sparse_mla", 256)
        capturing.value = True
        counts.note("sparse_mla", 64)
    counts.note("sparse_mla", 64)
    calls = counts.document()["calls"]["sparse_mla"]
    assert calls["capturing"] == {"64": 1}
    assert calls["eager_by_second"] == {"100": 1}
    assert calls["prefill"] == 2


def test_a_prefill_that_fails_is_over_all_the_same():
    counts = Counts(None, {}, Switch(False), Switch(100.0))
    with pytest.raises(RuntimeError, match="out of memory"), counts.decoding_nothing():
        raise RuntimeError("out of memory")
    counts.note("sparse_mla", 1)
    assert counts.document()["calls"]["sparse_mla"]["eager_by_second"] == {"100": 1}


def test_a_patch_that_only_prefilled_is_in_the_file():
    counts = Counts(None, {}, Switch(False), Switch(100.0))
    with counts.decoding_nothing():
        counts.note("sparse_mla", 256)
    assert counts.document()["calls"]["sparse_mla"]["prefill"] == 1


def test_old_seconds_are_folded_and_not_lost():
    clock = Switch(100.0)
    counts = Counts(None, {}, Switch(False), clock)
    counts.note("topk", 1)
    clock.value = 100.0 + module.KEPT_SECONDS + 1
    counts.note("topk", 1)
    calls = counts.document()["calls"]["topk"]
    assert calls["eager_before"] == 1
    assert list(calls["eager_by_second"].values()) == [1]


def test_the_file_is_named_by_process_and_never_seen_half_written(tmp_path):
    counts = Counts(str(tmp_path / "sub" / "counts.json"), {"sglang": "0.5.23"}, Switch(False))
    counts.write()
    (path,) = (tmp_path / "sub").iterdir()
    assert path.name == f"counts.json.{os.getpid()}"
    assert json.loads(path.read_text())["sglang"] == "0.5.23"


def test_a_call_reaches_the_file_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    counts = Counts(str(tmp_path / "counts.json"), {}, Switch(False))
    counts.note("indexer", 2)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if counts.path.exists() and json.loads(counts.path.read_text())["calls"]:
            break
        time.sleep(0.02)
    else:
        pytest.fail("the counts were not written within 10 s")


def test_a_disk_that_cannot_be_written_does_not_stop_the_counting(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.01)
    blocked = tmp_path / "a file where a folder should be"
    blocked.write_text("")
    counts = Counts(str(blocked / "counts.json"), {}, Switch(False))
    counts.note("indexer", 2)
    time.sleep(0.2)
    counts.note("indexer", 2)
    assert counts._thread.is_alive()
    assert sum(counts.document()["calls"]["indexer"]["eager_by_second"].values()) == 2
