"""The gate's two tiers need only what they import themselves: a GPU host lacks what the other tests bring along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """An environment in which packages of the test environment alone cannot be imported."""
    for name in ("yaml", "PIL"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not on this machine')\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return env | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [env.get("PYTHONPATH")])])}


def collect(env: dict[str, str], *arguments: str) -> tuple[int, set[str]]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, {"/".join(line.split("/")[:2]) for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.parametrize("tier", ["perf", "correctness"])
def test_a_tier_of_the_gate_is_collected_without_the_other_tests_packages(without: dict[str, str], tier: str) -> None:
    assert collect(without, "-m", tier) == (0, {f"tests/{tier}"})


def test_without_them_other_tests_do_not_come_so_far(without: dict[str, str]) -> None:
    assert collect(without, "tests/workflow/test_runner.py")[0] == 2
