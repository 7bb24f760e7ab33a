"""The gate's own steps around a real SGLang server: a good change, one that slows it down, one that crashes it.

Such a change is an SGLang plug-in on the module path, so that recipe, arguments and fingerprint stay those of the good
one. Judged by the smoke floor: the checkout has no baselines, so that another machine's figures cannot decide. The last
case has no floor either, and its change is a commit of the kernels' own package: only the merge base can tell.
The good change runs the whole correctness tier; the others, whose kernels are the same, a share of it.
"""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runner import Job, load, run_job
from server import kit

ROOT = Path(__file__).resolve().parents[2]
CHANGES = Path(__file__).parent / "changes"
PERF = "Performance against the stored baseline"

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(3000)]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A repository of its own with what lies in this checkout, without baselines of this machine."""
    folder = kit.checkout(tmp_path / "work")
    shutil.rmtree(folder / "baselines" / "cpu-tiny", ignore_errors=True)
    if kit.git(folder, "status", "--porcelain"):
        kit.commit(folder, "no baselines")
    return folder


def gate(work: Path, change: str | None = None, base: str | None = None) -> tuple[Job, Path]:
    """Run the gate job on this checkout's head, as a pull request where there is a base; the job and its one artifact."""
    tmp_path = work.parent
    tools = tmp_path / "tools"
    head = kit.git(work, "rev-parse", "HEAD")
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
        "TOX_HERE_CORRECTNESS": "-k test_layout" if change or base else "",
    }
    needs = {"approve": {"outputs": {"card": "h200", "recipe": "cpu-tiny", "sha": head}}}
    event: dict[str, object] = {}
    if base is not None:
        event = {"pull_request": {"number": 7, "base": {"sha": base}, "head": {"sha": head}}}
        subprocess.run(["git", "clone", "-q", "--bare", str(work), str(tmp_path / "o" / "r")], check=True)
        kit.git(tmp_path / "o" / "r", "update-ref", "refs/pull/7/head", head)
    github = {"run_id": os.getpid(), "run_attempt": 1, "event": event, "repository": "o/r"}
    github |= {"server_url": f"file://{tmp_path}", "token": "t"}
    contexts = {"github": github, "needs": needs, "inputs": {"against": ""}}
    job = run_job(
        load(ROOT / ".github/workflows/perf-gate.yml"), "gate", work, tmp_path / "run", contexts, machine, 1500
    )
    return job, job.artifacts["perf-gate-h200-1"]


def points(artifact: Path, step: str = "perf") -> dict[int, str]:
    result = json.loads((artifact / step / "result.json").read_text(encoding="utf-8"))
    return {point["concurrency"]: point["outcome"] for point in result["points"]}


def test_a_good_change_is_green_with_a_report_of_every_point(work):
    job, artifact = gate(work)
    assert job.passed, job.failures
    assert points(artifact) == {1: "PASS", 16: "PASS", 64: "PASS"}
    assert job.summary.startswith("## ✓ PASS")
    assert "<html" in (artifact / "perf" / "report.html").read_text(encoding="utf-8")
    assert list((artifact / "perf").glob("server*.log"))


def test_a_change_that_slows_the_server_is_red_and_says_regression(work):
    job, artifact = gate(work, "slow")
    assert job.step(PERF).outcome == "failure", job.failures
    assert not job.passed
    assert points(artifact)[1] == "REGRESSION"
    assert "REGRESSION" in job.summary
    assert (artifact / "perf" / "report.html").exists()


def test_a_change_that_crashes_the_server_is_missing_with_its_cause_and_keeps_what_was_measured(work):
    job, artifact = gate(work, "crash")
    assert job.step(PERF).outcome == "failure", job.failures
    found = points(artifact)
    assert found == {1: "PASS", 16: "PASS", 64: "MISSING"}
    assert "MISSING" in job.summary
    assert "Cause:" in job.summary
    assert list((artifact / "perf").glob("server*.log"))


def test_a_slowed_change_without_a_baseline_is_settled_against_the_merge_base(work):
    recipe = work / "recipes" / "cpu-tiny.toml"
    text = re.sub(r"(?m)^smoke = .*\n", "", recipe.read_text(encoding="utf-8"))
    first, second, *_ = re.finditer(r"(?m)^\[\[points\]\]\n", text)
    assert "concurrency = 1\n" in text[first.end() : second.start()]
    recipe.write_text(text[: second.start()], encoding="utf-8")
    fork = kit.commit(work, "one point, and no floor for any machine")
    kit.git(work, "checkout", "-q", "-b", "change")
    kit.slow_down(work)
    kit.git(work, "checkout", "-q", "main")
    kit.git(work, "commit", "-q", "--allow-empty", "-m", "main went on")
    main = kit.git(work, "rev-parse", "HEAD")
    kit.git(work, "checkout", "-q", "change")
    job, artifact = gate(work, base=main)
    assert job.step(PERF).outcome == "success", job.failures
    assert points(artifact) == {1: "NO_BASELINE"}
    assert job.step("A/B against the merge base").outcome == "failure"
    assert not job.passed
    assert points(artifact, "ab") == {1: "REGRESSION"}
    stored = json.loads((artifact / "ab" / "result.json").read_text(encoding="utf-8"))
    assert stored["extra"]["against"]["commit"] == fork, "the merge base, and not where main stands"
    assert "NO_BASELINE" in html.unescape(job.summary)
    assert "REGRESSION" in job.summary
