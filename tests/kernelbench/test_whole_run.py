"""The tier from its command to its table, on a card that isn't there: outputs are real, times made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfgate.kernelbench.rows import load

ROOT = Path(__file__).parents[2]


def run(out: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tools" / "gpu" / "kernelbench.sh"), str(out), "120", "-p", "kernelbench.fake_card"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    environment |= {"PYTHON": sys.executable, "PEERS": str(out / "none"), "FAKE_CARD": json.dumps(settings)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)


def test_a_run_stores_every_replay_and_prints_its_table_last(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert set(stored.ours()) == {"decode-B1-H16-64", "topk-B1-L600-k512"}
    assert all(len(row.times_us) == 60 and row.checked and row.sm_mhz == 1980 for row in stored.rows)
    assert stored.ours()["topk-B1-L600-k512"].median_us == pytest.approx(10, rel=0.02)
    assert ("topk-B1-L600-k512", "torch.topk") in [(row.shape.key, row.implementation) for row in stored.rows]
    assert "not timed: FlashMLA" in done.stdout
    assert len(done.stdout.splitlines()) <= 60
    assert (tmp_path / "table.txt").read_text().startswith("Card That Is Not There")


def test_a_wrong_kernel_fails_and_its_speed_is_not_stored(tmp_path: Path) -> None:
    done = run(tmp_path, wrong="topk")
    assert done.returncode == 1, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert set(stored.ours()) == {"decode-B1-H16-64"}
    log = (tmp_path / "log.txt").read_text()
    assert "topk-B1-L600-k512-ours" in log
    assert not [line for line in log.splitlines() if line.startswith("topk-B1-L600-k512  ours")]


def test_a_peer_that_cannot_be_timed_is_named_and_does_not_fail_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, peer_fails=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "could not be timed: topk-B1-L600-k512 torch.topk: RuntimeError: this peer takes no such shape" in done.stdout
    )
