"""Nothing vanishes between files: each states what it was to measure, and what is wrong or missing in one fails."""

from __future__ import annotations

import json

import pytest
from kernelbench_kit import DECODE, HC, RATES, ours, run, stored

from perfgate.baseline import BaselineError
from perfgate.kernelbench import baseline, cli, judge, recording
from perfgate.kernelbench.shapes import TopKShape
from perfgate.kernelbench.sources import digests
from perfgate.result import Outcome

BOTH = [DECODE.key, HC.key]
RARE = TopKShape(2, 2048)


def outcomes(path, *runs):
    return {one.key: one.outcome for one in judge.judge(runs, baseline.load(path))}


def hc_alone(**facts):
    return run({(HC, "ours"): 9.0}, seed=3, **facts)


def test_a_shape_that_one_of_two_files_lacks_is_missing(kernels_recorded):
    for facts in ({}, {"asked": BOTH}, {"asked": [HC.key]}):
        found = {one.key: one for one in judge.judge([ours(50.0), hc_alone(**facts)], baseline.load(kernels_recorded))}
        assert found[HC.key].outcome is Outcome.PASS
        assert found[DECODE.key].outcome is Outcome.MISSING
        assert found[DECODE.key].why == "not in run 2 of 2, which was to measure it"


def test_a_file_that_was_asked_for_less_is_held_to_that(kernels_recorded):
    half = hc_alone(asked=[HC.key], partial=True)
    assert outcomes(kernels_recorded, ours(50.0), half) == {DECODE.key: Outcome.PASS, HC.key: Outcome.PASS}
    # Alone it leaves the rest of the share unmeasured, and that is no pass.
    assert outcomes(kernels_recorded, half) == {DECODE.key: Outcome.MISSING, HC.key: Outcome.PASS}
    asked = hc_alone(asked=BOTH, partial=True)
    assert outcomes(kernels_recorded, ours(50.0), asked)[DECODE.key] is Outcome.MISSING


def test_parts_together_are_the_share(kernels_recorded):
    parts = [
        run({(DECODE, "ours"): 50.0}, seed=4, asked=[DECODE.key], partial=True),
        hc_alone(asked=[HC.key], partial=True),
    ]
    assert set(outcomes(kernels_recorded, *parts).values()) == {Outcome.PASS}


def test_a_quick_file_beside_a_full_one_answers_for_the_quick_share(tmp_path):
    path = tmp_path / "x.json"
    full = {(HC, "ours"): 9.0, (RARE, "ours"): 5.0}
    recording.record(path, [run(full, asked=[HC.key, RARE.key])], reason="first", recorded_at="2026-11-30")
    again = run(full, seed=1, asked=[HC.key, RARE.key])
    assert outcomes(path, again, hc_alone(quick=True, asked=[HC.key])) == {
        HC.key: Outcome.PASS,
        RARE.key: Outcome.PASS,
    }


def test_a_shape_asked_for_that_no_baseline_has_and_nobody_timed_is_missing(kernels_recorded):
    assert outcomes(kernels_recorded, ours(50.0, asked=[*BOTH, RARE.key]))[RARE.key] is Outcome.MISSING


def test_a_wrong_output_of_ours_is_invalid_in_whichever_file_it_stands(kernels_recorded):
    why = "ours: AssertionError: 3 scores are not among the largest"
    for runs in (
        [hc_alone(asked=BOTH, wrong={DECODE.key: why})],
        [ours(50.0), hc_alone(asked=BOTH, wrong={DECODE.key: why})],
        [ours(50.0, wrong={DECODE.key: why})],
    ):
        found = {one.key: one for one in judge.judge(runs, baseline.load(kernels_recorded))}
        assert found[DECODE.key].outcome is Outcome.INVALID
        assert why in found[DECODE.key].why


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([ours(50.0), hc_alone(asked=BOTH)], "is not in run 2"),
        ([ours(50.0, wrong={"hc-T64": "ours: a mix is off"})], "hc-T64: ours: a mix is off: nothing is recorded"),
        ([ours(50.0, sources={"hc": "1"}), ours(50.0, sources={"hc": "2"})], "different kernel sources"),
    ],
)
def test_what_is_missing_or_wrong_in_one_file_is_not_recorded(tmp_path, runs, words):
    with pytest.raises(BaselineError, match=words):
        recording.record(tmp_path / "x.json", runs, reason="first", recorded_at="2026-11-30")
    assert not (tmp_path / "x.json").exists()


def test_a_baseline_of_other_sources_is_named_and_still_the_measure(tmp_path):
    path = tmp_path / "x.json"
    recording.record(
        path,
        [ours(50.0, sources={"decode": "aa", "hc": "bb"})],
        reason="first",
        recorded_at="2026-11-30",
        commit="12073115a364",
    )
    found = {
        one.key: one for one in judge.judge([ours(60.0, sources={"decode": "cc", "hc": "bb"})], baseline.load(path))
    }
    assert found[DECODE.key].outcome is Outcome.REGRESSION
    assert found[DECODE.key].note == "the baseline was recorded for other sources of this kernel, of 12073115a364"
    assert found[HC.key].note == ""
    assert found[DECODE.key].note in judge.render(list(found.values()))


def test_a_baseline_that_does_not_say_of_which_sources_it_is_is_named(kernels_recorded):
    found = judge.judge([ours(50.0, sources={"decode": "cc", "hc": "bb"})], baseline.load(kernels_recorded))
    assert all("does not say which kernel sources" in one.note and one.outcome is Outcome.PASS for one in found)
    assert all(one.note == "" for one in judge.judge([ours(50.0)], baseline.load(kernels_recorded)))


def test_a_kernels_sources_are_its_own_files_and_those_that_all_share(tmp_path):
    for name in ("sparse_mla", "sparse_mla_table", "topk", "topk_kernels", "indexer", "hyper_connection", "layout"):
        (tmp_path / f"{name}.py").write_text(name)
    before = digests(tmp_path)
    assert set(before) == {"decode", "indexer", "topk", "hc"}
    (tmp_path / "topk_table.py").write_text("new")
    changed = digests(tmp_path)
    assert [kernel for kernel in before if before[kernel] != changed[kernel]] == ["topk"]
    (tmp_path / "layout.py").write_text("new")
    assert all(digests(tmp_path)[kernel] != changed[kernel] for kernel in changed)
    assert digests(tmp_path / "none") == {}
    assert set(digests()) == set(before)


def test_a_run_whose_rates_cannot_be_fails_beside_what_its_times_say(kernels_recorded, tmp_path, capsys):
    slow_copy = RATES | {"bytes": 2.0e12, "bf16": 1e16}
    times = {(DECODE, "ours"): 50.0, (HC, "ours"): 9.0, (DECODE, "FlashMLA"): 14.0}
    found = {one.key: one for one in judge.judge([run(times, rates=slow_copy)], baseline.load(kernels_recorded))}
    assert found[DECODE.key].outcome is Outcome.PASS
    assert found["roofline"].outcome is Outcome.INVALID
    assert "FlashMLA is at 11" in found["roofline"].why
    file = tmp_path / "run.json"
    file.write_text(json.dumps(stored(times, rates=slow_copy)))
    assert cli.main(["judge", str(file), "--baselines", str(tmp_path)]) == 1
    assert "INVALID      roofline: " in capsys.readouterr().out
