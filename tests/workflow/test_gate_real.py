"""The gate's own steps around a real SGLang server: a good change, one that slows it down, one that crashes it.

A change is an SGLang plug-in on the module path, so that recipe, arguments and fingerprint stay those of the good one.
Judged by the smoke floor: the clone has no baselines, so that another machine's figures cannot decide.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runner import Job, load, run_job

ROOT = Path(__file__).resolve().parents[2]
CHANGES = Path(__file__).parent / "changes"
PERF = "Performance against the stored baseline"

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(1500)]


def gate(tmp_path: Path, change: str | None) -> tuple[Job, Path]:
    """Run the gate job on a clone of this checkout; returns the job and its one artifact."""
    work, tools = tmp_path / "work", tmp_path / "tools"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(work)], check=True)
    shutil.rmtree(work / "baselines" / "cpu-tiny", ignore_errors=True)
    sha = subprocess.run(["git", "-C", str(work), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    tools.mkdir()
    (tools / "tox").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).parent / "tox_here.py"}" "$@"\n')
    (tools / "tox").chmod(0o755)
    # The runner's python3 is the one whose packages are being tested.
    (tools / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tools / "python3").chmod(0o755)
    paths = [str(work), str(work / "kernels"), *([str(CHANGES / change)] if change else [])]
    machine = {
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(paths),
        "TOX_CORRECTNESS": "correctness",
        "TOX_PERF": "perf",
        "TOX_DOCTOR": "doctor",
        "LOCK": str(tmp_path / "lock"),
    }
    needs = {"approve": {"outputs": {"card": "h200", "recipe": "cpu-tiny", "sha": sha.stdout.strip()}}}
    github = {"run_id": os.getpid(), "run_attempt": 1, "event": {}, "repository": "o/r", "server_url": "", "token": ""}
    contexts = {"github": github, "needs": needs, "inputs": {"against": ""}}
    job = run_job(
        load(ROOT / ".github/workflows/perf-gate.yml"), "gate", work, tmp_path / "run", contexts, machine, 900
    )
    return job, job.artifacts["perf-gate-h200-1"]


def points(artifact: Path) -> dict[int, str]:
    result = json.loads((artifact / "perf" / "result.json").read_text(encoding="utf-8"))
    return {point["concurrency"]: point["outcome"] for point in result["points"]}


def test_a_good_change_is_green_with_a_report_of_every_point(tmp_path):
    job, artifact = gate(tmp_path, None)
    assert job.passed, job.failures
    assert points(artifact) == {1: "PASS", 16: "PASS", 64: "PASS"}
    assert job.summary.startswith("## ✓ PASS")
    assert "<html" in (artifact / "perf" / "report.html").read_text(encoding="utf-8")
    assert list((artifact / "perf").glob("server*.log"))


def test_a_change_that_slows_the_server_is_red_and_says_regression(tmp_path):
    job, artifact = gate(tmp_path, "slow")
    assert job.step(PERF).outcome == "failure", job.failures
    assert not job.passed
    assert points(artifact)[1] == "REGRESSION"
    assert "REGRESSION" in job.summary
    assert (artifact / "perf" / "report.html").exists()


def test_a_change_that_crashes_the_server_is_missing_with_its_cause_and_keeps_what_was_measured(tmp_path):
    job, artifact = gate(tmp_path, "crash")
    assert job.step(PERF).outcome == "failure", job.failures
    found = points(artifact)
    assert (found[1], found[16]) == ("PASS", "MISSING")
    assert "MISSING" in job.summary
    assert "Cause:" in job.summary
    assert list((artifact / "perf").glob("server*.log"))
