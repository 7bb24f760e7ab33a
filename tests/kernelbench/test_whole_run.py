"""The tier from its command to its verdict, on a card that isn't there: outputs are real, times made up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfgate.kernelbench.rows import load

ROOT = Path(__file__).parents[2]
DECODE, TOPK = "decode-B1-H16-64", "topk-B1-L600-k512"


def start(command: list[str], out: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    folders = [ROOT, ROOT / "kernels", ROOT / "tests", ROOT / "tests" / "correctness"]
    environment |= {
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PEERS": str(out / "none"),
        "FAKE_CARD": json.dumps(settings),
    }
    return subprocess.run(
        [*command, "-p", "kernelbench.fake_card"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def script(out: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    return start([str(ROOT / "tools" / "gpu" / "kernelbench.sh"), str(out), "580"], out, **settings)


def suite(out: Path, *options: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Timing and verdict in one session, as ``pytest -m kernelbench`` has them."""
    tests = [f"tests/kernelbench/{name}.py" for name in ("test_speed", "test_verdict")]
    command = [sys.executable, "-m", "pytest", *tests, "-m", "kernelbench", "-q", "--confcutdir=tests/kernelbench"]
    command += ["-p", "perfgate.pytest_options", "-p", "no:cacheprovider", "--baselines", str(out), *options]
    return start(command, out, **settings)


def test_a_run_stores_every_replay_and_prints_its_table_last(tmp_path: Path) -> None:
    done = script(tmp_path, peer_fails=True)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert set(stored.ours()) == {DECODE, TOPK}
    assert all(len(row.times_us) == 60 and row.checked and row.sm_mhz == 1980 for row in stored.rows)
    assert stored.ours()[TOPK].median_us == pytest.approx(10, rel=0.02)
    assert len(done.stdout.splitlines()) <= 60
    assert (tmp_path / "table.txt").read_text().startswith("Card That Is Not There")
    # A peer that is not installed, or cannot be timed, is named; neither fails the run.
    assert "not timed: FlashMLA" in done.stdout
    assert f"could not be timed: {TOPK} torch.topk: RuntimeError: this peer takes no such shape" in done.stdout


def test_a_wrong_kernel_fails_and_its_speed_is_not_stored(tmp_path: Path) -> None:
    done = script(tmp_path, wrong="topk")
    assert done.returncode == 1, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert set(stored.ours()) == {DECODE}
    assert (TOPK, "torch.topk") in [(row.shape.key, row.implementation) for row in stored.rows]


def test_a_slower_and_a_vanished_shape_fail_against_what_was_recorded(tmp_path: Path) -> None:
    first = suite(tmp_path, "--record", "--reason", "first")
    assert first.returncode == 0, first.stdout + first.stderr
    assert (tmp_path / "kernels" / "1x-card-that-is-not-there.json").is_file()
    again = suite(tmp_path, seed=1)
    assert again.returncode == 0, again.stdout + again.stderr
    worse = suite(tmp_path, slower={"decode": 1.2}, lost=TOPK, seed=2)
    assert worse.returncode == 1
    assert re.search(rf"REGRESSION {DECODE}: 1[12]\.\d\d us, \+(19|20)", worse.stdout)
    assert f"MISSING {TOPK}: recorded on" in worse.stdout
