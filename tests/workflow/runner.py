"""Runs one job of a workflow file on this machine: its ``run:`` steps as a runner would, its actions as stand-ins.

``actions/checkout`` is the folder given, ``actions/setup-python`` this interpreter, ``actions/upload-artifact`` a copy
into another folder. Anything else is an error: a step that is not understood must not pass for one that ran.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from expressions import fill, runs

SHELLS = {
    None: ["bash", "-e"],
    "bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"],
}
"""What GitHub's runner calls for a step without ``shell:`` and for ``shell: bash`` (its workflow syntax reference)."""


@dataclass
class Step:
    """One step: ``outcome`` is success, failure or skipped, as in GitHub's own words."""

    name: str
    outcome: str
    output: str = ""
    exit_code: int | None = None


@dataclass
class Job:
    """What a job came to."""

    steps: list[Step] = field(default_factory=list)
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, Path] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(step.outcome != "failure" for step in self.steps)

    @property
    def failures(self) -> str:
        """The failed steps with what they printed last, for a test's message."""
        return "\n".join(f"{s.name} ({s.exit_code}):\n{s.output[-2000:]}" for s in self.steps if s.outcome == "failure")

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)


class WorkflowError(ValueError):
    """A workflow that this runner cannot run as GitHub would."""


def load(path: Path) -> dict[str, Any]:
    """A workflow file; ``on`` is read by YAML 1.1 as true, and is named ``on`` again."""
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    data["on"] = data.pop(True, data.get("on"))
    return data


def run_job(
    workflow: Mapping[str, Any],
    name: str,
    workspace: Path,
    scratch: Path,
    contexts: Mapping[str, Any],
    environment: Mapping[str, str],
    step_seconds: float = 600,
) -> Job:
    """Run a job's steps in ``workspace``. ``environment`` is the machine's, and wins over the job's ``env:``.

    Raises WorkflowError for an action, a shell or an expression that is not known here.
    """
    job = workflow["jobs"][name]
    scratch.mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = {"github": {}, "inputs": {}, "needs": {}, "vars": {}, "runner": {"temp": str(scratch)}}
    known = {**known, **contexts, "steps": {}, "env": {}}
    result, status = Job(), "success"
    env = {k: fill(str(v), known) for k, v in {**workflow.get("env", {}), **job.get("env", {})}.items()}
    env = {**env, **environment}
    known["env"] = env
    for number, step in enumerate(job["steps"]):
        title = step.get("name") or step.get("uses") or f"step {number}"
        if not runs(step.get("if"), known, status):
            result.steps.append(Step(title, "skipped"))
            continue
        if "uses" in step:
            done = _action(step, title, workspace, scratch, known, result)
        else:
            done = _command(step, title, number, workspace, scratch, known, env, result, step_seconds)
        result.steps.append(done)
        if done.outcome == "failure" and not step.get("continue-on-error"):
            status = "failure"
    result.outputs = {key: fill(str(value), known) for key, value in job.get("outputs", {}).items()}
    return result


def _command(step, title, number, workspace, scratch, known, env, result, seconds) -> Step:
    if step.get("shell") not in SHELLS:
        raise WorkflowError(f"step {title!r}: shell {step['shell']!r} is not known here")
    if "${{" in step["run"]:
        raise WorkflowError(f"step {title!r}: an expression inside run: is an injection; pass it by env:")
    script = scratch / f"step{number}.sh"
    script.write_text(step["run"], encoding="utf-8")
    files = {key: scratch / f"{key.lower()}-{number}" for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")}
    for file in files.values():
        file.touch()
    own = {key: fill(str(value), known) for key, value in step.get("env", {}).items()}
    whole = {
        **os.environ,
        **env,
        **own,
        **{k: str(v) for k, v in files.items()},
        "CI": "true",
        "GITHUB_ACTIONS": "true",
    }
    log = scratch / f"step{number}.log"
    with log.open("w", encoding="utf-8") as out:
        # To a file and not a pipe: a process left running would hold a pipe open and hang this runner, which is
        # what the clean-up step is there to prevent on a real one.
        command = [*SHELLS[step.get("shell")], str(script)]
        child = subprocess.Popen(
            command, cwd=workspace, env=whole, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            code = -9
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines() if "=" in line)
    if "id" in step:
        known["steps"][step["id"]] = {"outputs": outputs, "outcome": "success" if code == 0 else "failure"}
    result.summary += files["GITHUB_STEP_SUMMARY"].read_text(encoding="utf-8")
    return Step(title, "success" if code == 0 else "failure", log.read_text(encoding="utf-8", errors="replace"), code)


def _action(step, title, workspace, scratch, known, result) -> Step:
    action = step["uses"].partition("@")[0]
    if action in ("actions/checkout", "actions/setup-python"):
        return Step(title, "success")
    if action != "actions/upload-artifact":
        raise WorkflowError(f"step {title!r}: action {action!r} is not known here")
    options = {key: fill(str(value), known) for key, value in step["with"].items()}
    source, target = workspace / options["path"], scratch / "artifacts" / options["name"]
    if not source.exists():
        wanted = options.get("if-no-files-found", "warn") == "error"
        return Step(title, "failure" if wanted else "success", f"no files at {options['path']}")
    shutil.copytree(source, target)
    result.artifacts[options["name"]] = target
    return Step(title, "success")
