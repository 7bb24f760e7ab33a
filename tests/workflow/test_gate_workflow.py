"""The gate's workflow: what it allows, and what its steps make of each verdict. Measurements are scripted here."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner import load, run_job

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"
GATE = load(FOLDER / "perf-gate.yml")
ALL = [load(path) for path in sorted(FOLDER.glob("*.yml"))]
STEPS = [step for workflow in ALL for job in workflow["jobs"].values() for step in job["steps"]]

TOX = """#!/bin/bash
# Stands in for tox: writes what the test scripted, in place of a measurement.
echo "tox $*" >> "$CALLS"
report=
previous=
for word in "$@"; do
  [ "$previous" = --report ] && report=$word
  previous=$word
done
case "$*" in
  *doctor*) exit "${DOCTOR:-0}" ;;
  *correctness*) exit "${CORRECT:-0}" ;;
  *--against-commit*) verdict=$AB ;;
  *) verdict=$PERF ;;
esac
[ -n "$LEAVE" ] && { setsid sleep 60 & echo $! > "$LEAVE"; }
mkdir -p "$report"
echo "a server's line" > "$report/server-start0.log"
[ "$verdict" = CRASH ] && exit 139
echo "{\\"outcome\\": \\"$verdict\\"}" > "$report/result.json"
echo "## $verdict from $report" > "$report/summary.md"
[ "$verdict" = LIE ] && exit 0
[ "$verdict" = PASS ] || [ "$verdict" = IMPROVED ]
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def gate(tmp_path):
    """Runs the gate job on a pull request whose measurements are scripted."""
    work, origin, tools = tmp_path / "work", tmp_path / "owner" / "repo", tmp_path / "tools"
    work.mkdir()
    tools.mkdir()
    git(work, "init", "-q", "-b", "main")
    git(work, "commit", "-q", "--allow-empty", "-m", "base")
    base = git(work, "rev-parse", "HEAD")
    (work / "change").write_text("x")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "head")
    head = git(work, "rev-parse", "HEAD")
    git(tmp_path, "clone", "-q", "--bare", str(work), str(origin))
    git(origin, "update-ref", "refs/pull/7/head", head)
    (tools / "tox").write_text(TOX)
    (tools / "tox").chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()

    def go(event="pull_request_target", against="", **environment):
        pull = {"number": 7, "base": {"sha": base}, "head": {"sha": head}} if event == "pull_request_target" else None
        github = {"run_id": f"{os.getpid()}{time.monotonic_ns()}", "run_attempt": 1, "repository": "owner/repo"}
        github |= {"server_url": f"file://{tmp_path}", "token": "t", "event": {"pull_request": pull} if pull else {}}
        needs = {"approve": {"outputs": {"card": "h200", "recipe": "cpu-tiny", "sha": environment.pop("sha", head)}}}
        machine = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "LOCK": str(tmp_path / "lock"),
            **environment,
        }
        contexts = {"github": github, "needs": needs, "inputs": {"against": against}}
        job = run_job(GATE, "gate", work, tmp_path / "scratch", contexts, machine, step_seconds=60)
        return job, calls.read_text().splitlines()

    go.base, go.head, go.origin, go.work, go.tmp = base, head, origin, work, tmp_path
    return go


@pytest.mark.parametrize("verdict", ["PASS", "IMPROVED"])
def test_a_change_that_passes_is_let_through_with_its_summary_and_artifacts(gate, verdict):
    job, calls = gate(PERF=verdict)
    assert job.passed, job.failures
    assert job.summary == f"## {verdict} from perf-report/perf\n"
    assert [c.split(" -- ")[0] for c in calls] == ["tox -e gpu-doctor", "tox -e gpu-correctness", "tox -e gpu-perf"]
    kept = {str(p.relative_to(job.artifacts["perf-gate-h200-1"])) for p in job.artifacts["perf-gate-h200-1"].rglob("*")}
    assert {"perf/result.json", "perf/summary.md", "perf/server-start0.log", "doctor.txt", "correctness.log"} <= kept


@pytest.mark.parametrize("verdict", ["REGRESSION", "INVALID", "MISSING"])
def test_a_verdict_that_fails_stops_the_merge_without_a_second_try(gate, verdict):
    job, calls = gate(PERF=verdict, AB="PASS")
    assert not job.passed
    assert len(calls) == 3
    assert verdict in job.summary
    assert job.artifacts


def test_a_crash_that_wrote_no_result_is_missing_and_keeps_the_log(gate):
    job, _ = gate(PERF="CRASH")
    assert not job.passed
    assert "✗ MISSING" in job.summary
    assert (job.artifacts["perf-gate-h200-1"] / "perf" / "server-start0.log").read_text() == "a server's line\n"


def test_an_exit_code_of_0_without_a_passing_verdict_is_not_believed(gate):
    job, _ = gate(PERF="LIE")
    assert not job.passed


@pytest.mark.parametrize("first", ["NO_BASELINE", "INCONCLUSIVE"])
@pytest.mark.parametrize(("second", "passed"), [("PASS", True), ("REGRESSION", False), ("INCONCLUSIVE", False)])
def test_what_the_baseline_cannot_settle_is_settled_against_the_merge_base(gate, first, second, passed):
    job, calls = gate(PERF=first, AB=second)
    assert job.passed is passed
    assert f"--against-commit {gate.base} " in calls[3]
    assert first in job.summary
    assert second in job.summary


def test_main_without_a_baseline_fails_and_says_how_to_record_one(gate):
    job, calls = gate(event="schedule", PERF="NO_BASELINE", AB="PASS")
    assert not job.passed
    assert len(calls) == 3
    assert "docs/baselines.md" in job.step("A/B against the merge base").output


def test_wrong_kernels_are_not_timed(gate):
    job, calls = gate(CORRECT="1", PERF="PASS")
    assert not job.passed
    assert len(calls) == 2
    assert "MISSING" in job.summary
    assert (job.artifacts["perf-gate-h200-1"] / "correctness.log").exists()


def test_a_machine_that_cannot_run_the_recipe_measures_nothing(gate):
    job, calls = gate(DOCTOR="1", PERF="PASS")
    assert not job.passed
    assert len(calls) == 1


def test_a_head_that_moved_after_the_approval_is_not_run(gate):
    git(gate.origin, "update-ref", "refs/pull/7/head", gate.base)
    job, calls = gate(PERF="PASS")
    assert not job.passed
    assert calls == []
    assert "the head moved" in job.step("The approved commit is still the head").output


def test_another_commit_than_the_approved_one_is_not_run(gate):
    job, calls = gate(PERF="PASS", sha=gate.base)
    assert not job.passed
    assert calls == []


def test_a_held_host_lock_keeps_the_gate_out(gate):
    with subprocess.Popen(["flock", str(gate.tmp / "lock"), "sleep", "30"]) as holder:
        time.sleep(0.5)
        job, calls = gate(PERF="PASS", LOCK_SECONDS="1")
        subprocess.run(["pkill", "-P", str(holder.pid)], check=False)
        holder.terminate()
    assert not job.passed
    assert [c.split(" -- ")[0] for c in calls] == ["tox -e gpu-doctor"]


def test_only_processes_of_this_job_are_ended(gate):
    other = subprocess.Popen(["sleep", "60"], env={**os.environ, "PERF_GATE_JOB": "another-1"})
    try:
        job, _ = gate(PERF="PASS", LEAVE=str(gate.tmp / "left"))
        left = int((gate.tmp / "left").read_text())
        assert job.passed
        assert f"ending {left} with TERM" in job.step("End what this job left running").output
        assert ended(left)
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


def ended(pid: int) -> bool:
    """Gone, or dead and waiting for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def approve(tmp_path, kind, inputs=None, approvers="", **github):
    known = {
        "github": {"event_name": kind, **github},
        "inputs": inputs or {},
        "vars": {"PERF_GATE_APPROVERS": approvers},
    }
    return run_job(GATE, "approve", tmp_path, tmp_path / "scratch", known, {}, step_seconds=20)


def label(name, sender="mona", sha="a" * 40):
    return {"label": {"name": name}, "sender": {"login": sender}, "pull_request": {"head": {"sha": sha}}}


@pytest.mark.parametrize(
    ("name", "card", "recipe"),
    [("h200", "h200", "v4mini-patched"), ("rtx-pro-6000", "rtx-pro-6000", "v4-flash-nvfp4-tp8-rtxpro6000")],
)
def test_a_label_approves_the_head_of_that_moment_on_the_card_it_names(tmp_path, name, card, recipe):
    job = approve(tmp_path, "pull_request_target", event=label(f"perf-gate:{name}"))
    assert job.passed
    assert job.outputs == {"card": card, "recipe": recipe, "sha": "a" * 40}


@pytest.mark.parametrize(
    ("event", "approvers"),
    [
        (label("perf-gate:rtx-5090"), ""),
        (label("perf-gate:$(id)"), ""),
        (label("perf-gate:h200", sender="stranger"), "mona lisa"),
        (label("perf-gate:h200", sender="mon"), "mona lisa"),
        (label("perf-gate:h200", sha="main; id"), ""),
    ],
)
def test_what_no_maintainer_approved_is_not_run(tmp_path, event, approvers):
    job = approve(tmp_path, "pull_request_target", approvers=approvers, event=event)
    assert not job.passed
    assert job.outputs == {"card": "", "recipe": "", "sha": ""}
    assert "uid=" not in job.steps[0].output


def test_by_night_and_by_hand_main_is_measured_and_no_other_branch(tmp_path):
    night = approve(tmp_path, "schedule", ref="refs/heads/main", sha="b" * 40)
    assert night.outputs == {"card": "h200", "recipe": "v4mini-patched", "sha": "b" * 40}
    asked = {"card": "h200", "recipe": "v4mini-stock"}
    assert (
        approve(tmp_path, "workflow_dispatch", asked, ref="refs/heads/main", sha="b" * 40).outputs["recipe"]
        == "v4mini-stock"
    )
    assert not approve(tmp_path, "workflow_dispatch", asked, ref="refs/heads/other", sha="b" * 40).passed


def test_only_a_label_event_reaches_a_pull_request():
    assert GATE["on"]["pull_request_target"] == {"types": ["labeled"]}
    assert "pull_request" not in GATE["on"]
    assert "startsWith(github.event.label.name, 'perf-gate:')" in GATE["jobs"]["approve"]["if"]
    assert GATE["jobs"]["gate"]["needs"] == "approve"
    assert GATE["jobs"]["gate"]["steps"][0]["with"]["ref"] == "${{ needs.approve.outputs.sha }}"


def test_no_gate_is_cancelled_and_each_card_has_its_own_queue():
    queue = GATE["jobs"]["gate"]["concurrency"]
    assert queue == {"group": "perf-gate-${{ needs.approve.outputs.card }}", "cancel-in-progress": False}


def test_every_workflow_only_reads_and_keeps_no_credentials():
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in ALL)
    assert all("permissions" not in job for workflow in ALL for job in workflow["jobs"].values())
    checkouts = [step for step in STEPS if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_actions_are_pinned_by_a_whole_commit_and_named_by_version():
    lines = [line.strip() for path in FOLDER.glob("*.yml") for line in path.read_text().splitlines() if "uses:" in line]
    assert len(lines) >= 4
    assert all(re.search(r"uses: actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line) for line in lines)


def test_no_input_is_written_into_a_script():
    assert not [step for step in STEPS if "${{" in step.get("run", "")]


def test_no_failure_is_waved_through():
    text = json.dumps(STEPS)
    assert "continue-on-error" not in text
    assert "|| echo" not in text
    # The only two: a process that ended by itself before its signal came.
    assert text.count("|| true") == 1


@pytest.mark.workflow
def test_both_linters_find_nothing():
    lint = Path(__file__).parent / "lint_workflows.py"
    done = subprocess.run([sys.executable, str(lint)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
