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

from perfgate.kernelbench.judge import judge
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


def script(out: Path, *options: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return start([str(ROOT / "tools" / "gpu" / "kernelbench.sh"), str(out), "580", *options], out, **settings)


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
    assert (stored.asked, stored.partial, stored.wrong) == ((DECODE, TOPK), False, {})
    assert set(stored.sources) == {"decode", "indexer", "topk", "hc"}
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
    assert list(stored.wrong) == [TOPK]
    assert stored.wrong[TOPK].startswith("ours: AssertionError: ")
    assert f"WRONG: {TOPK}: ours: AssertionError: " in done.stdout
    assert [one.outcome.value for one in judge([stored], None) if one.key == TOPK] == ["INVALID"]
    assert (TOPK, "torch.topk") in [(row.shape.key, row.implementation) for row in stored.rows]


def test_a_card_that_a_fault_took_from_the_process_ends_the_run_and_calls_no_kernel_wrong(tmp_path: Path) -> None:
    done = script(tmp_path, wrong="topk", gone=True)
    assert done.returncode == 1, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert (set(stored.ours()), stored.wrong) == ({DECODE}, {})
    assert f"could not be timed: {TOPK} ours: AssertionError" in done.stdout
    assert f"NOT MEASURED: 1 of 2 shapes asked for: {TOPK}" in done.stdout
    log = (tmp_path / "log.txt").read_text()
    assert f"the GPU is lost to this process since {TOPK} ours or before" in log
    assert re.search(r"^1 failed, 1 passed", log, re.MULTILINE), "what came after the fault was timed all the same"
    assert {one.key: one.outcome.value for one in judge([stored], None)} == {DECODE: "NO_BASELINE", TOPK: "MISSING"}


def test_a_part_of_the_share_says_that_it_is_one_and_a_share_above_the_roofline_is_in_its_file(tmp_path: Path) -> None:
    done = script(tmp_path, "--kernelbench-part=2/2", copy=2e8)
    assert done.returncode == 0, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert set(stored.ours()) == {TOPK}
    assert (stored.asked, stored.partial) == ((TOPK,), True)
    # 4,448 bytes in 10 us are 445 MB a second.
    facts = json.loads((tmp_path / "kernelbench.json").read_text())["machine_info"]["kernelbench"]
    assert facts["over_roof"] == {f"{TOPK} {name}": pytest.approx(2.22, abs=0.05) for name in ("ours", "torch.topk")}
    assert f"FAULT: {TOPK} ours at 22" in done.stdout


def test_a_run_that_is_out_of_time_starts_nothing_more_and_says_what_is_left(tmp_path: Path) -> None:
    done = script(tmp_path, late="topk")
    assert done.returncode == 1, done.stdout + done.stderr
    stored = load(tmp_path / "kernelbench.json")
    assert (set(stored.ours()), stored.asked, stored.partial) == ({DECODE}, (DECODE, TOPK), False)
    assert {row.shape.key for row in stored.rows} == {DECODE}
    log = (tmp_path / "log.txt").read_text()
    assert "out of time: 1 of 2 shapes are left" in log
    assert re.search(r"^1 passed, 1 error in", log, re.MULTILINE), "what is left does not fail one by one"
    assert f"NOT MEASURED: 1 of 2 shapes asked for: {TOPK}" in done.stdout
    assert {one.key: one.outcome.value for one in judge([stored], None)} == {DECODE: "NO_BASELINE", TOPK: "MISSING"}


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
