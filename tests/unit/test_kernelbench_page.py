"""The scaling plots of the kernels: marks where the numbers say, on logarithmic axes, beside the least possible time."""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest
from kernelbench_kit import run, stored

from perfgate.kernelbench import cli, page
from perfgate.kernelbench.series import plots
from perfgate.kernelbench.shapes import DecodeShape, HcShape, IndexerShape


def decode(batch):
    return DecodeShape(batch, 64, 128, 512)


TIMES = {
    **{(decode(b), "ours"): us for b, us in ((1, 10.0), (4, 20.0), (16, 40.0))},
    **{(decode(b), "FlashMLA"): us for b, us in ((1, 11.0), (4, 13.0), (16, 16.0))},
    **{(IndexerShape(64, n, n), "ours"): us for n, us in ((512, 4.0), (2048, 6.0))},
    (IndexerShape(64, 512, 262_144), "ours"): 4.1,
    (HcShape(1), "ours"): 9.0,
}


def named(run):
    return {(plot.title, plot.axis): plot for plot in plots(run)}


def test_shapes_that_differ_in_one_thing_are_on_one_plot():
    found = named(run(TIMES))
    assert set(found) == {
        ("decode, heads 64, window 128, extra 512", "batch"),
        ("indexer, batch 64, maximum length", "length"),
        ("indexer, batch 64, length 512", "maximum length"),
    }
    lines = found["decode, heads 64, window 128, extra 512", "batch"].lines
    assert [(line.label, line.ours, [x for x, _ in line.points]) for line in lines] == [
        ("ours", True, [1, 4, 16]),
        ("FlashMLA", False, [1, 4, 16]),
    ]


def test_a_family_without_ours_is_not_drawn():
    peers = {cell: us for cell, us in TIMES.items() if cell[1] != "ours"}
    assert plots(run(peers)) == []


def test_both_axes_are_logarithmic_and_slower_is_higher():
    plot = named(run(TIMES, noise=0))["decode, heads 64, window 128, extra 512", "batch"]
    drawing = str(page.draw(plot))
    spots = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawing)]
    (x1, y1), (x2, y2), (x3, y3) = spots
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.1), "1, 4 and 16 are equally far apart"
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.1), "and so are 10, 20 and 40 us"
    assert y1 > y2 > y3
    assert "<title>ours at 16: 40.0 us</title>" in drawing


def test_the_roofline_is_the_least_time_at_the_runs_own_rates():
    plot = named(run(TIMES))["decode, heads 64, window 128, extra 512", "batch"]
    x, us = plot.roof[-1]
    assert x == 16
    assert us == pytest.approx(1e6 * decode(16).work.bytes / 4.2e12)
    assert all(us < time for (_, us), (_, time) in zip(plot.roof, plot.lines[0].points, strict=True))


def test_labels_do_not_lie_on_each_other():
    placed = page._apart([(100.0, "a"), (101.0, "b"), (90.0, "c")])
    assert all(later - sooner >= 14 for (sooner, _), (later, _) in itertools.pairwise(placed))


def test_the_command_writes_a_page_with_every_plot_and_nothing_from_outside(tmp_path, capsys):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(stored(TIMES)))
    assert cli.main(["report", str(path)]) == 0
    text = (tmp_path / "run.html").read_text()
    assert text.count("<svg") == 3
    assert not re.search(r"<script|https?://|src=", text)
    assert "bars: " in text


def test_a_label_from_a_file_is_text_on_the_page():
    content = stored(TIMES)
    for one in content["benchmarks"]:
        one["extra_info"]["label"] = "<script>x</script>"
    from perfgate.kernelbench.rows import run_from

    assert "<script>" not in page.render(run_from(content))


def test_times_far_apart_still_have_round_ticks():
    drawn = {(HcShape(1), "ours"): 2.0, (HcShape(64), "ours"): 20_000.0}
    ticks = re.findall(r">([\d.e+]+) us</text>", str(page.draw(plots(run(drawn, noise=0))[0])))
    assert {float(t) for t in ticks} >= {10.0, 100.0, 1000.0, 10_000.0}
    assert all(math.log10(float(t)).is_integer() for t in ticks)
