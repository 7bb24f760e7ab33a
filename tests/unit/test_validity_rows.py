"""The table of faults says which row has no test, and the rows that validity answers for have theirs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "field_cases.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("field_cases", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["field_cases"] = module
    spec.loader.exec_module(module)
    return module


def test_row_without_a_test_and_test_without_a_row_are_faults(script: ModuleType) -> None:
    wanted = [row for row in script.rows() if row.id in ("B01", "X05")]
    found = script.faults(wanted, {"B01": ["t.py::a"], "Z99": ["t.py::b"], "R05": ["t.py::c"]})
    assert [fault.split()[0] for fault in found] == ["X05", "Z99"]
    assert script.faults(wanted, {"B01": ["t.py::a"], "X05": ["t.py::b"]}) == []


def test_table_names_each_row_and_its_tests(script: ModuleType) -> None:
    wanted = [row for row in script.rows() if row.id in ("B01", "X05")]
    text = script.table(wanted, {"B01": ["t.py::a", "t.py::b"]})
    assert "| B01 |" in text
    assert "`t.py::a`<br>`t.py::b`" in text
    assert "| X05 |" in text
    assert "**none**" in text


def test_rows_that_validity_answers_for_have_tests() -> None:
    command = [sys.executable, str(SCRIPT), "--rows", "B,X,R05,C19,C27", str(SCRIPT.parent / "unit")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=SCRIPT.parent.parent, check=False)
    assert done.returncode == 0, done.stderr


def test_every_row_about_kernels_has_a_test() -> None:
    command = [sys.executable, str(SCRIPT), "--rows", "K", str(SCRIPT.parent / "correctness")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=SCRIPT.parent.parent, check=False)
    assert done.returncode == 0, done.stderr


def test_collection_that_fails_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import no_such_module_at_all\n")
    command = [sys.executable, str(SCRIPT), "--rows", "B01", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False)
    assert done.returncode != 0
    assert "could not collect" in done.stderr
