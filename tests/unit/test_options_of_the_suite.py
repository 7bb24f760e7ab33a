"""The suite's options on pytest's command line: no mistake that pytest answers with a riddle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfgate import pytest_options

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("option", pytest_options.PATHS)
def test_a_value_that_pytest_took_for_its_root_is_answered_with_what_to_write(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    lost, found = (SimpleNamespace(inipath=path) for path in (None, ROOT / "pyproject.toml"))
    arguments = ["-m", "perf", option, str(tmp_path)]
    with pytest.raises(pytest.UsageError, match=f"write {option}={tmp_path}"):
        pytest_options.pytest_load_initial_conftests(lost, arguments)  # type: ignore[arg-type]
    pytest_options.pytest_load_initial_conftests(found, arguments)  # type: ignore[arg-type]
    pytest_options.pytest_load_initial_conftests(lost, [f"{option}={tmp_path}"])  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)  # another project's run is none of ours
    pytest_options.pytest_load_initial_conftests(lost, arguments)  # type: ignore[arg-type]


def test_pytest_itself_ends_there_and_not_in_an_import_error(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", pytest_options.PLUGIN, "-m", "perf"]
    command += ["--report", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 4
    assert f"write --report={tmp_path}" in done.stderr
    assert "ImportError" not in done.stderr
