"""What is timed, the least it takes, and what a stored run says; each figure by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kernelbench_kit import DECODE, HC, RATES, ours, run, stored

from perfgate.kernelbench import bars, roofline, rows, shapes
from perfgate.kernelbench.shapes import DecodeShape, HcShape, IndexerShape, TopKShape
from perfgate.kernelbench.table import render


def test_the_bytes_of_a_decode_are_those_that_were_counted_for_the_card():
    """0.50, 8.1, 32 and 65 MB at B = 1, 16, 64 and 128 with 64 heads and 128+512 rows."""
    moved = [DecodeShape(b, 64, 128, 512).work.bytes / 1e6 for b in (1, 16, 64, 128)]
    assert moved == pytest.approx([0.507, 8.12, 32.5, 64.9], rel=5e-3)


def test_flops_of_each_kernel():
    assert DecodeShape(2, 16, 128, 512).work.flops == 2 * 2 * 2 * 16 * 640 * 512
    assert IndexerShape(2, 100, 256).work.flops == 2 * 2 * 100 * 64 * 128
    assert TopKShape(2, 100).work.flops == 0
    assert HcShape(3).work.flops == 2 * 3 * 16_384 * 24


def test_the_work_of_the_indexer_follows_the_length_and_not_the_maximum():
    assert IndexerShape(4, 512, 512).work == IndexerShape(4, 512, 262_144).work


def test_the_least_time_is_that_of_the_slower_of_bytes_and_flops():
    rates = roofline.Rates(bytes=1e12, bf16=1e14)
    assert roofline.least_us(shapes.Work(10**6, 10**6), rates) == pytest.approx(1.0)
    assert roofline.least_us(shapes.Work(10**6, 10**9), rates) == pytest.approx(10.0)
    assert roofline.limit(shapes.Work(10**6, 10**9), rates) == "flops"
    fast = roofline.Rates(bytes=1e12, bf16=1e14, fp8=2e14)
    assert roofline.least_us(shapes.Work(0, 10**9, "fp8"), fast) == pytest.approx(5.0)
    assert roofline.least_us(shapes.Work(0, 10**9, "fp8"), rates) == pytest.approx(10.0)


def test_every_shape_of_the_plan_is_timed_once_and_comes_back_from_its_record():
    every = shapes.every_shape()
    assert len({s.key for s in every}) == len(every)
    assert all(shapes.restore(shapes.describe(s)) == s for s in every)
    decodes = [s for s in every if isinstance(s, DecodeShape)]
    assert {s.batch for s in decodes} == {1, 2, 4, 8, 16, 32, 64, 128, 256}
    assert {(s.window, s.extra) for s in decodes} == {(128, 0), (128, 512), (128, 8192)}
    assert {s.heads for s in decodes} == {16, 32, 64, 128}
    indexers = [s for s in every if isinstance(s, IndexerShape)]
    assert {s.maximum for s in indexers if s.length == 512} == {512, 16_384, 65_536, 262_144}
    topks = [s for s in every if isinstance(s, TopKShape)]
    # A server's scores are as wide as its page table, which holds a page more than the context's.
    assert {s.maximum for s in topks if s.length == 512} == {512, 16_448, 65_600, 262_208}
    for kind in (indexers, topks):
        assert {s.batch for s in kind} == {1, 2, 4, 8, 16, 32, 64, 128, 256}
        assert {s.length for s in kind} == {512, 2048, 8192, 16_384, 65_536, 262_144}
        assert all(s.length <= s.maximum for s in kind)
    assert {s.batch for s in every if isinstance(s, HcShape)} >= {1, 2, 4, 8, 16, 32, 64, 128, 256}


def test_a_baseline_file_still_names_its_shapes():
    for path in (Path(__file__).parents[2] / "baselines" / "kernels").glob("*.json"):
        points = json.loads(path.read_text())["points"]
        assert points
        assert {key: shapes.restore(point["shape"]).key for key, point in points.items()} == {
            key: key for key in points
        }
        assert {point["shape"]["kernel"] for point in points.values()} == set(shapes.KERNELS)


def test_a_row_as_wide_as_it_is_long_is_one_shape_however_it_was_asked_for():
    assert TopKShape(64, 65_536) == TopKShape(64, 65_536, maximum=65_536)
    assert TopKShape(64, 65_536, maximum=262_208).key == "topk-B64-L65536-k512-max262208"
    assert TopKShape(64, 65_536, maximum=262_208).work == TopKShape(64, 65_536).work
    for kind in (IndexerShape(1, 512, 512), TopKShape(1, 512)):
        with pytest.raises(ValueError, match="longer than the maximum"):
            replace(kind, maximum=511)


def test_the_quick_share_holds_every_shape_of_a_bar_and_little_else():
    quick = bars.quick_shapes()
    assert all(bar.shapes <= quick for bar in bars.BARS)
    assert {TopKShape(64, 65_536), TopKShape(64, 65_536, maximum=262_208)} <= quick
    assert len(quick) <= 20


def test_bars_are_reached_missed_or_not_measured():
    def states(ours_us, flash_us, triton_us=None):
        shape = bars.decode(16)
        medians = {(shape, "ours"): ours_us, (shape, "FlashMLA"): flash_us}
        if triton_us:
            medians[(shape, "SGLang Triton")] = triton_us
        found = {r.bar.name: r for r in bars.reached(medians)}
        return (
            found[f"{shape.key} over FlashMLA"].state,
            found[f"SGLang Triton over ours, {shape.key}"].state,
            found["hc-T1 over DeepGEMM"].state,
        )

    assert states(18.8, 16.4, 1900) == ("reached", "reached", "not measured")
    assert states(19.0, 16.4, 1500) == ("missed", "missed", "not measured")
    assert states(18.8, 16.4) == ("reached", "not measured", "not measured")


def test_what_was_set_is_counted_apart_from_what_was_added():
    own = [bar for bar in bars.BARS if not bar.added]
    assert len(own) == 19
    assert {bar.name for bar in bars.BARS if bar.added} == {
        *(f"hc-T{t} without merge over DeepGEMM split" for t in (1, 64)),
        *(f"hc-T{t} over DeepGEMM" for t in (1, 64)),
    }
    text = render(run({(HC, "ours"): 9.0, (HC, "DeepGEMM"): 70.0, (HC, "DeepGEMM split"): 8.0}, noise=0))
    before, after = text.split("beside them, not counted:\n")
    assert "bars: 1 of 19 reached" in before
    assert "hc-T1 over DeepGEMM split" in before
    assert "reached          0.13 <= 1.2" in after


def test_ahead_of_flash_mla_somewhere_takes_one_shape_and_a_tie_is_not_ahead():
    def state(*pairs):
        medians = {}
        for batch, own, peer in pairs:
            medians |= {(bars.decode(batch), "ours"): own, (bars.decode(batch), "FlashMLA"): peer}
        return next(r.state for r in bars.reached(medians) if r.bar.name.endswith("somewhere"))

    assert state((1, 17.0, 16.0), (64, 43.9, 44.0)) == "reached"
    assert state((1, 17.0, 16.0), (64, 44.0, 44.0)) == "missed"
    assert state() == "not measured"


def test_a_net_ratio_leaves_the_empty_graph_out_of_both_sides():
    assert bars.net_ratio(10.5, 7.8, 4.9) == pytest.approx(5.6 / 2.9)
    assert bars.net_ratio(10.5, 4.9, 4.9) is None
    found = next(r for r in bars.reached({(HC, "ours"): 10.5, (HC, "torch fp32"): 22.5}, {}, 4.9) if r.value)
    assert (found.value, found.net) == (pytest.approx(22.5 / 10.5), pytest.approx(17.6 / 5.6))


def test_a_share_above_the_roofline_is_a_fault_of_the_run_that_its_table_shows():
    # 32.5 MB in 12 us are 2.7 TB/s: 111 % of what a copy of 2.45 TB/s allows.
    slow_copy = RATES | {"bytes": 2.45e12, "bf16": 1e16}
    found = run({(DECODE, "ours"): 50.0, (DECODE, "FlashMLA"): 12.0}, rates=slow_copy, noise=0)
    assert [(row.label, round(share, 2)) for row, share in found.over_roof()] == [("FlashMLA", 1.11)]
    text = render(found)
    assert "111%!" in text
    assert f"FAULT: {DECODE.key} FlashMLA at 111% of the roofline" in text
    assert run({(DECODE, "FlashMLA"): 13.1}, rates=slow_copy, noise=0).over_roof() == [], "101 % may be noise"


def test_the_rates_line_names_every_copy_and_why_one_is_missing():
    copies = {"memcpy": 2.75e12, "kernel of 8192": 4.21e12}
    assert "copy 4.21 TB/s (memcpy 2.75, kernel of 8192 4.21), bf16" in render(
        run({(HC, "ours"): 9.0}, rates=RATES | {"bytes": 4.21e12, "copies": copies})
    )
    alone = RATES | {"bytes": 2.75e12, "copies": {"memcpy": 2.75e12}, "copy_fault": "RuntimeError: no compiler"}
    assert "copy 2.75 TB/s (memcpy 2.75; RuntimeError: no compiler)" in render(run({(HC, "ours"): 9.0}, rates=alone))


def test_a_stored_run_is_read_with_its_times_in_microseconds():
    found = ours(50.0)
    assert found.ours()[DECODE.key].median_us == pytest.approx(50, rel=0.01)
    assert found.rates.bytes == 4.2e12
    assert found.commit == "abc123"


def spoil(change):
    content = stored({(HC, "ours"): 9.0})
    change(content["benchmarks"][0], content)
    return content


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b, c: b["extra_info"].update(checked=""), "not checked"),
        (lambda b, c: b["stats"].update(data=b["stats"]["data"][:49]), "at least 50"),
        (lambda b, c: b["stats"]["data"].__setitem__(3, 0.0), "is none"),
        (lambda b, c: b["extra_info"]["shape"].update(kernel="gemm"), "gemm"),
        (lambda b, c: c["benchmarks"].append(b), "timed twice"),
        (lambda b, c: c["machine_info"].clear(), "machine_info"),
        (lambda b, c: c["machine_info"]["kernelbench"]["rates"].update(bytes=0), "above 0"),
    ],
)
def test_a_run_that_does_not_count_is_refused_by_what_is_wrong_with_it(change, words):
    with pytest.raises(rows.RunError, match=words):
        rows.run_from(spoil(change))


def test_the_table_has_the_columns_of_the_comparison():
    text = render(run({(DECODE, "ours"): 48.4, (DECODE, "FlashMLA"): 44.0, (DECODE, "SGLang Triton"): 7515.0}, noise=0))
    line = next(row for row in text.splitlines() if row.startswith(f"{DECODE.key}  ours"))
    cells = line.split()
    # 32.5 MB and 5.37 GFLOP in 48.4 us; at 4.2 TB/s they take 7.7 us, at 700 TFLOP/s 7.7; 21.7 us on the other card.
    # Less the empty graph's 2.1 us in both, 48.4 over 44.0 is 46.3 over 41.9.
    assert cells[2:] == ["48.4", "0.0%", "0.67", "111", "16%", "bytes", "1.10", "1.11", "21.7"]
    assert "reached          1.10 <= 1.25   net     1.11  decode-B64-H64-128+512 over FlashMLA" in text
    assert "1980 to 1980 MHz; throttled: no" in text


def test_the_table_is_cut_to_the_lines_asked_for_and_says_so():
    times = {(TopKShape(b, 2048), "ours"): 5.0 for b in range(1, 80)}
    text = render(run(times), most_lines=60)
    assert len(text.splitlines()) == 60
    assert "more rows are in the JSON" in text


def test_what_does_not_fit_below_the_rows_is_counted_too():
    times = {(TopKShape(b, 2048), "ours"): 5.0 for b in range(1, 80)}
    absent = {f"topk-B{b} SGLang torch": "too slow, 614 ms a call" for b in range(1, 80)}
    text = render(run(times, absent=absent), most_lines=60)
    assert len(text.splitlines()) == 60
    assert "bars: " in text
    assert text.splitlines()[-1].endswith("more lines: show the whole table")


def test_a_shape_that_was_asked_for_and_not_timed_is_named_and_so_is_a_wrong_output():
    keys = [HC.key, DECODE.key, "hc-T64"]
    text = render(run({(HC, "ours"): 9.0}, asked=keys, wrong={"hc-T64": "ours: AssertionError: a mix is off"}))
    assert "WRONG: hc-T64: ours: AssertionError: a mix is off" in text
    assert f"NOT MEASURED: 1 of 3 shapes asked for: {DECODE.key}" in text
