"""The job summary tells the verdict in GitHub's markdown, and text from logs stays text."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfgate.report import jsonfile, markdown

CASES = Path(__file__).parents[1] / "report_browser" / "cases"
RED = jsonfile.read(CASES / "red.json")
EMPTY = jsonfile.read(CASES / "empty.json")


def test_the_verdict_is_the_title():
    assert markdown.render(RED).startswith("## ▼ REGRESSION: v4mini-patched\n")


def test_each_point_has_one_row_with_its_verdict():
    rows = [line for line in markdown.render(RED).splitlines() if re.match(r"\| \d+ \|", line)]
    assert [(row.split(" | ")[0].strip("| "), row.split(" | ")[10]) for row in rows] == [
        ("1", "✓ PASS"),
        ("16", "▼ REGRESSION"),
        ("64", "✗ MISSING"),
    ]


def test_a_row_holds_the_step_time_too_against_its_baseline():
    (row,) = [line for line in markdown.render(RED).splitlines() if line.startswith("| 16 |")]
    (step,) = [m for p in RED.points if p.concurrency == 16 for m in p.metrics if m.name == "step_time"]
    assert row.replace("&#43;", "+").split(" | ")[8:10] == [f"{step.baseline:.3f}", f"{step.change * 100:+.1f} %"]


def test_a_run_without_points_says_so_and_names_what_did_not_run():
    text = markdown.render(EMPTY)
    assert "No point was measured." in text
    assert "### Not run\n\n- C=1\n- C=16\n- C=64" in text


def test_a_point_that_is_not_pass_shows_cause_evidence_and_next_step():
    text = markdown.render(RED)
    assert "**Cause:** GPU&#95;OOM" in text
    assert "```text\n[2026-11-29 04:01:51 TP0] Scheduler hit an exception" in text
    assert "**What to do next:** the decode graphs stop at 32" in text
    assert "### ✓ C=1" not in text


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "a | b",
        "[click](https://example.com)",
        "https://example.com and www.example.com",
        "@maintainer see #12",
        "`code` **bold** _it_ ~~gone~~ $x$",
        "&lt;b&gt;",
        "- item",
        "1. item",
        "10) item",
        "2026. item",
        "7.",
        ":100: 8:tada:",
        "+ item",
        "=====",
        "line\n\n# title",
        ":tada:",
    ],
)
def test_escaped_text_reads_back_as_itself_and_holds_no_markup(text):
    import html

    escaped = markdown.escape(text)
    assert html.unescape(escaped) == " ".join(text.split())
    bare = re.sub(r"&#\d+;", "x", escaped)
    assert not re.search(r"[<>`*_\[\]|~@#$\\]|&|://|www\.|:\w+:|^[-+=]|^\d+[.)]", bare)


@pytest.mark.parametrize("text", ["45.5 tok/s", "0.90 of C/TPOT", "2026-11-30 10:00:50 UTC"])
def test_figures_and_times_are_left_as_they_are(text):
    assert markdown.escape(text) == text


@given(st.lists(st.text() | st.text(alphabet="` a", min_size=3)))
@example(["```"])
def test_no_line_of_evidence_can_close_its_code_block(lines):
    block = markdown.fence(lines).split("\n")
    mark = block[0].removesuffix("text")
    assert block[-1] == mark
    assert len(block) == len(lines) + 2
    assert not any(line.lstrip().startswith(mark) for line in block[1:-1])


def test_a_summary_larger_than_github_takes_is_cut_between_parts_and_says_so():
    long = RED.points[2].model_copy(update={"evidence": ["x" * 400] * 25})
    text = markdown.render(RED.model_copy(update={"points": [long] * 300, "notes": ["n" * 200] * 5000}))
    assert len(text.encode()) <= 1024 * 1024
    assert "Cut here" in text
    assert text.count("```") % 2 == 0


def test_loosened_floors_and_differences_are_listed_in_every_summary():
    text = markdown.render(RED)
    assert "### Loosened floors" in text
    assert "the accuracy fix of the top-k costs 2.5 %" in text
    assert "software.driver" in text
    assert "### Orphaned baselines" in text
