"""Marks stand where their numbers say, and are told apart by shape."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate.report import extras, jsonfile, plots, svg
from perfgate.report.pointer import Source

CASES = Path(__file__).parents[1] / "report_browser" / "cases"
RED = jsonfile.read(CASES / "red.json").model_dump(mode="json")


def centres(drawing: str, pattern: str) -> dict[str, float]:
    """Where each circle stands, by its pointer."""
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"[^>]*data-path="([^"]+)"', drawing)
    return {path: float(x if pattern == "x" else y) for x, y, path in found}


def test_a_slower_point_stands_further_left_in_throughput_and_right_in_step_time():
    speed, step = (
        centres(plots.metric(Source(RED), "throughput"), "x"),
        centres(plots.metric(Source(RED), "step_time"), "x"),
    )
    assert speed["/points/1/metrics/0/value"] < speed["/points/0/metrics/0/value"]
    assert step["/points/1/metrics/1/value"] > step["/points/0/metrics/1/value"]


def test_run_baseline_floor_and_target_have_four_shapes():
    drawing = str(plots.metric(Source(RED), "throughput"))
    shapes = {
        key: re.search(rf'<(\w+)[^>]*data-path="/points/0/metrics/0/{key}"', drawing) for key in ("value", "floor")
    }
    assert shapes["value"][1] == "circle"
    assert shapes["floor"][1] == "rect"
    corners = {
        key: len(re.search(rf'<polygon points="([^"]+)"[^>]*data-path="/points/0/metrics/0/{key}"', drawing)[1].split())
        for key in ("baseline", "target")
    }
    assert corners == {"baseline": 4, "target": 3}


def test_a_target_far_off_the_axis_stands_at_its_edge_with_its_number():
    assert re.search(
        r'<text[^>]*data-path="/points/0/metrics/0/target"[^>]*>600.0</text>', plots.metric(Source(RED), "throughput")
    )


def test_each_measured_step_time_is_a_mark_at_the_height_of_its_fit():
    heights = centres(plots.scaling(Source(RED)), "y")
    rows = RED["extra"]["scaling"]["points"]
    found = [heights[f"/extra/scaling/points/{i}/step_ms"] for i in range(len(rows))]
    assert found == sorted(found, reverse=True), "svg's y grows downwards, so slower is a smaller y"


def test_points_too_few_for_a_fit_are_drawn_without_one():
    rows = RED["extra"]["scaling"]["points"]
    alone = {**RED, "extra": {"scaling": {"points": rows, "laws": ["4 or more are needed"]}}}
    drawing = plots.scaling(Source(alone))
    assert len(centres(drawing, "y")) == len(rows)
    assert "curve" not in drawing


def test_the_fit_bends_with_the_experts_touched():
    """6, 81, 200 experts at N = 1, 16, 64 for top-6 of 256: the coverage that the published model gives."""
    touched = extras.Fit(a=0.0, b=0.0, e=1.0)
    assert [round(touched(n)) for n in (1, 16, 64)] == [6, 81, 200]
    assert extras.fit({"a": 40.0, "b": 31.0}, "")(64) == 40.0 + 31.0 * 64


def test_points_may_be_tables_or_triples():
    triples = extras.dots({"points": [[1, 2.0, 0.1], [16, 3.0, None]]}, "/s")
    assert [(d.n, d.step_ms, d.sd_ms, d.path) for d in triples] == [
        (1.0, 2.0, 0.1, "/s/points/0/1"),
        (16.0, 3.0, None, "/s/points/1/1"),
    ]


def test_a_change_point_is_drawn_as_another_shape_with_a_label():
    series = extras.series(RED["extra"]["history"], "/extra/history")
    assert [s.concurrency for s in series] == ["1", "16"]
    with_change, without = (str(plots.history(Source(RED), s)) for s in series)
    assert "<polygon" in with_change
    assert ">change</text>" in with_change
    assert "<polygon" not in without


def test_the_baselines_share_is_told_from_this_runs_by_hatching():
    assert plots.profile(Source(RED)).count('class="share hatched"') == 6


def test_a_run_without_numbers_draws_nothing():
    assert plots.metric(Source({"points": []}), "throughput") == ""


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=8))
def test_every_value_lies_on_its_axis_and_ticks_are_round_and_inside(values):
    scale = svg.spanning(values, 0, 100)
    assert all(0 <= scale(v) <= 100 for v in values)
    marks = svg.ticks(scale)
    assert 1 <= len(marks) <= 12
    slack = (scale.high - scale.low) * 1e-6
    assert all(scale.low - slack <= m <= scale.high + slack for m in marks)


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (1500.0, "1,500"), (0.25, "0.25")])
def test_tick_labels_are_short(value, text):
    assert svg.tick_text(value) == text
