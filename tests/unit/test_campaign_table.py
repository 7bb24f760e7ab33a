"""The table of a GPU campaign: every point asked for has a row, and a ratio stands only where both sides were measured."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "gpu"))

import campaign_table

from perfgate.result import MetricResult, Outcome, PointResult, RunResult, SampleRow

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-report" / "h200-v4mini-patched" / "result.json"


def result(name: str, throughput: dict[int, float], started_at: float = 1.0) -> RunResult:
    example = RunResult.model_validate_json(EXAMPLE.read_text())
    points = [
        PointResult(
            concurrency=c,
            outcome=Outcome.NO_BASELINE if value else Outcome.MISSING,
            why="",
            cause="NONE" if value else "OOM_RUN",
            metrics=[metric("throughput", value), metric("step_time", 2.0)] if value else [],
            samples=[
                SampleRow(index=i, server_start=start, asked=1, step_ms=start + i / 100, counted=i < 2)
                for start in (1, 2)
                for i in range(3)
                if value
            ],
        )
        for c, value in throughput.items()
    ]
    return example.model_copy(update={"recipe": name, "points": points, "started_at": started_at})


def metric(name: str, value: float) -> MetricResult:
    return MetricResult(
        name=name, unit="tok/s" if name == "throughput" else "ms", higher_is_better=True, value=value, low=value - 1, high=value + 1,
        outcome=Outcome.NO_BASELINE, why="",
    )  # fmt: skip


def test_a_point_that_is_missing_has_a_row_with_its_cause() -> None:
    lines = campaign_table.rows({"v4mini-stock": result("v4mini-stock", {1: 500.0, 64: 0.0})})
    assert [line.split(" | ")[1] for line in lines] == ["1", "64"]
    assert lines[0].split(" | ")[2] == "500 [499, 501]"
    assert "MISSING (OOM_RUN)" in lines[1]


def test_spreads_are_of_samples_that_count_within_starts_and_between() -> None:
    (point,) = result("v4mini-stock", {1: 500.0}).points
    within, between = campaign_table.spreads(point)
    assert (within, between) == ("0.5%", "66.4%")  # 0.00707 and 1.0 over the median of 1.00, 1.01, 2.00 and 2.01


def test_ratios_want_both_sides() -> None:
    found = {name: result(name, {1: 500.0, 64: 0.0}) for name in ("v4mini-stock", "v4mini-fallback-1m")}
    assert campaign_table.ratios(found) == []
    found["v4mini-patched"] = result("v4mini-patched", {1: 450.0, 64: 8000.0})
    assert campaign_table.ratios(found) == ["- `v4mini-patched` over `v4mini-stock`: C=1 0.90"]


def test_archives_are_read_and_the_last_run_of_a_recipe_counts(tmp_path: Path) -> None:
    for number, (value, at) in enumerate([(2.0, 20.0), (1.0, 10.0)]):
        data = result("v4mini-stock", {1: value}, at).model_dump_json().encode()
        with tarfile.open(tmp_path / "gpu0.tar", "a") as archive:
            member = tarfile.TarInfo(f"0{number}-v4mini-stock/result.json")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    (found,) = campaign_table.results([tmp_path / "gpu0.tar"]).values()
    assert found.points[0].metrics[0].value == 2.0


def test_a_page_without_marks_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    monkeypatch.setattr(sys, "argv", ["campaign_table.py", str(EXAMPLE.parent), "--page", str(page)])
    assert campaign_table.main() == 2
    page.write_text("a\n<!-- campaign -->\nold\n<!-- /campaign -->\nb\n")
    assert campaign_table.main() == 0
    assert "| v4mini-patched | 64 |" in page.read_text()
    assert "old" not in page.read_text()
