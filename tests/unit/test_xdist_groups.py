"""Tests of one group stay on one worker, whatever pytest and pytest-xdist make of it between them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import time, pytest
@pytest.mark.parametrize("x", [pytest.param(i, marks=pytest.mark.xdist_group(f"g{i // 4}")) for i in range(8)])
def test_a(x):
    time.sleep(0.05)
"""


def test_a_group_runs_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-n", "2"]
    command += ["--dist", "loadgroup", "-v", "test_a.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    workers = defaultdict(set)
    for worker, number in re.findall(r"\[(gw\d)\].*test_a\[(\d)\]", done.stdout):
        workers[int(number) // 4].add(worker)
    assert {group: len(on) for group, on in workers.items()} == {0: 1, 1: 1}
