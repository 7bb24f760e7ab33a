"""A patch counts as on only where the counters show that it ran."""

from __future__ import annotations

import pytest
from dsv4_kernels.sglang_plugin.counts import Counts as Counter

from perfgate.patch_proof import (
    Calls,
    Counts,
    CountsError,
    calls_a_step,
    check_counts,
    check_log,
    read_counts,
)

SIX_LAYERS = (0, 0, 4, 128, 4, 128)
STEP = calls_a_step(SIX_LAYERS)


def counts(pid=7, patch="sparse_mla", capturing=None, eager=None, patches=None):
    calls = {patch: Calls(capturing=capturing or {}, eager_by_second=eager or {})}
    return Counts(
        schema=1, pid=pid, sglang="0.5.15.post1", arch="sm_90", patches=patches or {patch: ["target"]}, calls=calls
    )


def kinds(problems):
    return [p.kind for p in problems]


def test_calls_a_step_follow_the_models_layers():
    assert STEP == {
        "sparse_mla": 6,
        "fallback_sparse_mla": 6,
        "indexer": 2,
        "fallback_indexer": 2,
        "topk": 2,
        "hc_prenorm": 12,
    }


def test_a_patch_captured_once_a_layer_and_size_is_proved():
    assert check_counts([counts(capturing={1: 6, 16: 6, 64: 12})], ["sparse_mla"], [1, 16, 64], STEP) == []


def test_a_patch_that_was_not_applied_is_invalid():
    assert kinds(check_counts([counts()], ["topk"], [1], STEP)) == ["NOT_HOOKED"]
    assert kinds(check_counts([], ["topk"], [1], STEP)) == ["NOT_HOOKED"]


def test_every_rank_has_to_apply_it():
    one, two = counts(pid=7, capturing={1: 6}), counts(pid=8, capturing={1: 6})
    assert kinds(check_counts([one], ["sparse_mla"], [1], STEP, ranks=2)) == ["NOT_HOOKED"]
    assert check_counts([one, two], ["sparse_mla"], [1], STEP, ranks=2) == []


def test_a_graph_that_was_captured_without_the_patch_is_invalid():
    (problem,) = check_counts([counts(capturing={1: 6})], ["sparse_mla"], [1, 16], STEP)
    assert problem.kind == "NOT_CAPTURED"
    assert "[16]" in problem.message


@pytest.mark.field_case("R08", "R13")
@pytest.mark.parametrize("count", [1, 5, 7])
def test_a_capture_that_some_layers_went_round_is_invalid(count):
    assert kinds(check_counts([counts(capturing={1: count})], ["sparse_mla"], [1], STEP)) == ["WRONG_COUNT"]


def test_decode_outside_a_graph_inside_the_window_is_invalid_and_prefills_are_not():
    window = [(100.5, 110.5)]
    eager = {100: 3, 105: 6, 110: 3}
    (problem,) = check_counts([counts(capturing={1: 6}, eager=eager)], ["sparse_mla"], [1], STEP, windows=window)
    assert problem.kind == "EAGER_IN_WINDOW"
    assert "6 decode calls" in problem.message
    indexer = counts(patch="indexer", capturing={1: 2}, eager=eager)
    assert check_counts([indexer], ["indexer"], [1], STEP, windows=window) == []


@pytest.mark.parametrize("sglang", ["0.5.15.post1", "0.5.23"])
def test_on_sm_120_prefill_goes_through_the_same_function_and_only_a_decode_counts_as_eager(tmp_path, sglang):
    capturing, now = [True], [90.0]
    header = {"sglang": sglang, "arch": "sm_120", "patches": {"sparse_mla": ["a.b"]}}
    counter = Counter(str(tmp_path / "c"), header, lambda: capturing[0], lambda: now[0])
    for rows in (1, 16):
        for _ in SIX_LAYERS:
            counter.note("sparse_mla", rows)
    capturing[0], now[0] = False, 101.5
    with counter.decoding_nothing():
        for rows in (256, 8192, 1):
            for _ in SIX_LAYERS:
                counter.note("sparse_mla", rows)

    def found():
        counter.write()
        return check_counts(read_counts(tmp_path / "c"), ["sparse_mla"], [1, 16], STEP, windows=[(100.0, 105.0)])

    assert found() == []
    counter.note("sparse_mla", 64)  # a batch above the captured sizes
    (problem,) = found()
    assert problem.kind == "EAGER_IN_WINDOW"
    assert "1 decode calls" in problem.message


def test_prefill_alone_proves_no_decode():
    calls = Calls(prefill=12)
    made = counts().model_copy(update={"calls": {"sparse_mla": calls}})
    assert kinds(check_counts([made], ["sparse_mla"], [], STEP, graphs=False)) == ["NOT_CAPTURED"]
    assert kinds(check_counts([made], ["sparse_mla"], [1], STEP)) == ["NOT_CAPTURED"]


def test_where_the_captured_sizes_are_not_known_no_call_proves_a_decode():
    made = counts(capturing={1: 6}, eager={5: 600})
    (problem,) = check_counts([made], ["sparse_mla"], [], STEP)
    assert problem.kind == "NOT_CAPTURED"
    assert "graphs_reason" in problem.message


def test_without_graphs_a_whole_step_is_enough_and_for_the_prewarm_any_call():
    assert kinds(check_counts([counts()], ["sparse_mla"], [], STEP, graphs=False)) == ["NOT_CAPTURED"]
    assert kinds(check_counts([counts(eager={5: 5})], ["sparse_mla"], [], STEP, graphs=False)) == ["WRONG_COUNT"]
    assert check_counts([counts(eager={5: 6})], ["sparse_mla"], [], STEP, graphs=False) == []
    assert check_counts([counts(eager={5: 1})], ["sparse_mla"], [], {}, graphs=False) == []
    assert check_counts([counts(patch="prewarm", eager={5: 1})], ["prewarm"], [1], STEP) == []
    assert kinds(check_counts([counts(patch="prewarm")], ["prewarm"], [1], STEP)) == ["NOT_CAPTURED"]
    assert check_counts([counts(patch="scaled_weights", eager={5: 1})], ["scaled_weights"], [], STEP) == []


def test_what_the_plug_in_writes_is_what_is_read(tmp_path):
    header = {"sglang": "0.5.23", "arch": "sm_90", "patches": {"topk": ["a.b"]}}
    counter = Counter(str(tmp_path / "counts.json"), header, lambda: True)
    counter.note("topk", 16)
    counter.note("topk", 16)
    counter.write()
    (found,) = read_counts(tmp_path / "counts.json")
    assert found.calls["topk"].capturing == {16: 2}
    assert check_counts([found], ["topk"], [16], STEP) == []


@pytest.mark.parametrize("text", ["", "{", '{"schema": 2}', "[]", '{"schema": 1, "pid": "x"}'])
def test_a_file_that_is_no_counters_file_is_named(tmp_path, text):
    (tmp_path / "counts.json.12").write_text(text)
    with pytest.raises(CountsError, match=r"counts\.json\.12"):
        read_counts(tmp_path / "counts.json")


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-29 17:18:08] Failed to load plugin dsv4_kernels from group sglang.srt.plugins",
        "[2026-11-29 17:18:08] Failed to execute general plugin: dsv4_kernels",
        "[2026-11-29 17:18:08] Failed to apply hooks to deep_gemm.fp8_paged_mqa_logits",
    ],
)
def test_sglangs_line_about_a_failed_plug_in_is_fatal(line):
    (problem,) = check_log(f"ready\n{line}\nmore")
    assert problem.evidence == (line,)
    assert check_log("The server is fired up and ready to roll!") == []
