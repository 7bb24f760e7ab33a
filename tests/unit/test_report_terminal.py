"""The table in the terminal says what was and was not measured, within its width, and cannot be repainted by a log."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate.report import jsonfile, terminal
from perfgate.result import Outcome, PointResult, RunResult

CASES = Path(__file__).parents[1] / "report_browser" / "cases"
RED = jsonfile.read(CASES / "red.json")
EMPTY = jsonfile.read(CASES / "empty.json")


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def with_point(**changes) -> RunResult:
    point = PointResult(concurrency=16, outcome=Outcome.MISSING, why="died", cause="GPU_OOM").model_copy(update=changes)
    return EMPTY.model_copy(update={"points": [point]})


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_but_the_table_is_wider_than_asked(width):
    lines = terminal.render(RED, width).splitlines()
    assert max(columns(line) for line in lines) <= 120
    assert all(columns(line) <= width for line in lines if "  |" in line or line.startswith("  next"))


def test_the_table_fits_120_columns_with_a_fast_server_and_all_verdicts():
    speed = (
        RED.points[1]
        .metrics[0]
        .model_copy(
            update={"value": 1234567.8, "low": 1234000.1, "high": 1235000.2, "floor": 1200000.0, "baseline": 1250000.0}
        )
    )
    points = [
        RED.points[1].model_copy(update={"outcome": outcome, "metrics": [speed, RED.points[1].metrics[1]]})
        for outcome in Outcome
    ]
    text = terminal.render(RED.model_copy(update={"points": points}))
    assert all(columns(line) <= 120 for line in text.splitlines())


def test_the_verdict_is_the_first_word_of_the_first_line():
    assert terminal.render(RED).split()[1] == "REGRESSION"


def test_what_was_not_measured_is_a_dash_and_never_a_zero():
    row = next(line for line in terminal.render(RED).splitlines() if line.startswith("64 "))
    assert "MISSING" in row
    assert not any(c in row.removeprefix("64") for c in "0123456789")


def test_a_missing_point_shows_cause_evidence_and_next_step():
    text = terminal.render(RED)
    assert "cause: GPU_OOM" in text
    assert "torch.OutOfMemoryError" in text
    assert "next: the decode graphs stop at 32" in text


def test_points_that_never_ran_are_named():
    assert [line for line in terminal.render(EMPTY).splitlines() if line.startswith("NOT RUN")] == [
        "NOT RUN: C=1",
        "NOT RUN: C=16",
        "NOT RUN: C=64",
    ]
    assert "no point was measured" in terminal.render(EMPTY)


def test_evidence_that_is_cut_says_how_much_is_left():
    assert "32 more lines in the JSON result" in terminal.render(with_point(evidence=[f"line {i}" for i in range(42)]))


def test_a_loosened_floor_is_listed_with_old_value_new_value_and_reason():
    text = " ".join(terminal.render(RED).split())
    assert "loosened floor: point C=64, metric throughput, from 17,800, to 17,350, reason the accuracy fix" in text


def test_discarded_samples_are_counted_apart():
    assert "5 of 6 samples counted" in terminal.render(RED)


@given(st.text())
def test_no_text_from_a_log_reaches_the_terminal_as_a_control(text):
    shown = terminal.render(with_point(why=text, evidence=[text], advice=text))
    assert all(c == "\n" or unicodedata.category(c) != "Cc" for c in shown)
    assert all(columns(line) <= 120 for line in shown.splitlines())


def test_an_escape_that_would_hide_the_verdict_is_removed():
    shown = terminal.render(with_point(why="\x1b[2J\x1b[1;1H\x1b[32m✓ PASS\x1b]0;title\x07 \u202egnorw"))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
