"""Every fault of the field has a test, and docs/faults.md says which: read from the tests' own text, without a collection."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import field_cases

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "faults.md").read_text()


def claims() -> Iterator[tuple[str, str]]:
    """(row, test) for every mark of the tests, on a function or on one of its parameters."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for mark in (m for d in node.decorator_list for m in ast.walk(d)):
                    if (
                        isinstance(mark, ast.Call)
                        and isinstance(mark.func, ast.Attribute)
                        and mark.func.attr == "field_case"
                    ):
                        for argument in mark.args:
                            yield ast.literal_eval(argument), f"{path.relative_to(ROOT).as_posix()}::{node.name}"


CLAIMS = list(claims())


def test_every_row_has_a_test() -> None:
    claimed = {row for row, _ in CLAIMS}
    assert [row.id for row in field_cases.rows() if row.id not in claimed] == []


def test_every_mark_names_a_row_that_exists() -> None:
    known = {row.id for row in field_cases.rows()}
    assert [(row, test) for row, test in CLAIMS if row not in known] == []


def test_the_document_is_that_of_these_tests() -> None:
    written = {
        (row, test)
        for row, tests in re.findall(r"^\| ([A-Z]\d\d) \|.*\| ([^|]*) \|$", DOCUMENT, re.MULTILINE)
        for test in re.findall(r"`([^`]+)`", tests)
    }
    assert written == set(CLAIMS), "python tests/field_cases.py --write docs/faults.md"


def test_a_run_of_the_tier_is_counted_from_its_junit_files(tmp_path: Path) -> None:
    cases = '<testcase classname="tests.faults.test_x" name="test_a" time="2.04"/>'
    bad = '<testcase classname="tests.faults.test_x" name="test_b[1]" time="1"><failure message="m">t</failure></testcase>'
    for name, inside, seconds in (("one", cases, 10), ("two", bad, 5)):
        suite = (
            f'<testsuites><testsuite time="{seconds}" timestamp="2026-11-30T10:00:00">{inside}</testsuite></testsuites>'
        )
        (tmp_path / name).write_text(suite)
    ran = field_cases.read_run([tmp_path / "one", tmp_path / "two"])
    text = field_cases.run_table(ran)
    assert "Not one run: put together from 2 runs" in text
    assert "the last on 2026-11-30: **1 of 2 passed** in 15 s" in text
    whole = field_cases.run_table(field_cases.read_run([tmp_path / "one"], "on a quiet machine"))
    assert "`pytest -m faults` on 2026-11-30: **1 of 1 passed** in 10 s" in whole
    assert "on a quiet machine" in whole
    assert "| `faults/test_x.py::test_a` | passed | 2 |" in text
    assert "| `faults/test_x.py::test_b[1]` | failure | 1 |" in text
