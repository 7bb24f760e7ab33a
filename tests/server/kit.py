"""Runs the suite as a user does, in a process of its own, and reads what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from perfgate import revision
from perfgate.pytest_options import PLUGIN

ROOT = Path(__file__).parents[2]
SLOW = ROOT / "tests" / "workflow" / "changes" / "slow"
"""An SGLang plug-in, installed by being on the path, after which every scheduler step waits for 50 ms, or $CHANGE_STEP_SECONDS."""
RECIPE = (ROOT / "recipes" / "cpu-tiny.toml").read_text()


@dataclass(frozen=True)
class Outcome:
    """A finished run: exit code, what it printed, its result file, its folder."""

    code: int
    text: str
    result: dict[str, Any] | None
    report: Path

    def verdicts(self) -> dict[int, str]:
        assert self.result is not None, self.text
        return {p["concurrency"]: p["outcome"] for p in self.result["points"]}

    def point(self, concurrency: int) -> dict[str, Any]:
        assert self.result is not None, self.text
        point: dict[str, Any] = next(p for p in self.result["points"] if p["concurrency"] == concurrency)
        return point


def quick_recipe(folder: Path, **changes: str) -> Path:
    """cpu-tiny with samples as short as they may be and floors that a busy machine keeps; ``changes`` replace pieces."""
    text = re.sub(r"smoke = \{.*\}", "smoke = { throughput = 1 }", RECIPE)
    text = text.replace("output_len = 32", "output_len = 16")
    text = text.replace("samples = 3\nmax_samples = 6", "samples = 2\nmax_samples = 2\nmin_seconds = 1.0")
    assert "min_seconds = 1.0" in text
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cpu-tiny.toml"
    path.write_text(text)
    return path


def start(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, root: Path = ROOT
) -> subprocess.Popen[str]:
    """``pytest -m perf`` of the checkout at ``root`` with a report of its own, its output going to ``folder/out.txt``;
    ``environment`` is put in front of this process's: a PYTHONPATH before the one that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(root / "tests" / "perf"),
        "-m",
        "perf",
        "-p",
        "no:cacheprovider",
        "-p",
        PLUGIN,
    ]
    command += [f"--report={folder / 'report'}", f"--rootdir={root}", f"-c{root / 'pyproject.toml'}", *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    for name, value in (environment or {}).items():
        env[name] = os.pathsep.join(filter(None, (value, env.get(name))))
    with (folder / "out.txt").open("w") as sink:
        return subprocess.Popen(
            command,
            cwd=root,
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            preexec_fn=_listen_to_ctrl_c,
        )


def _listen_to_ctrl_c() -> None:
    """Tests that run in a shell's background ignore SIGINT, and their children would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen[str], folder: Path, seconds: float = 1200) -> Outcome:
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # its fixtures stop the server
        process.wait(timeout=60)
        raise AssertionError(f"no end within {seconds:.0f} s:\n{(folder / 'out.txt').read_text()}") from None
    path = folder / "report" / "result.json"
    result = json.loads(path.read_text()) if path.is_file() else None
    return Outcome(code, (folder / "out.txt").read_text(), result, folder / "report")


def run(folder: Path, *arguments: str) -> Outcome:
    return finish(start(folder, *arguments), folder)


def checkout(folder: Path) -> Path:
    """A repository of its own at ``folder`` whose one commit is what lies in this checkout, committed there or not."""
    folder.mkdir(parents=True)
    revision.export_working_tree(ROOT, folder)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "what lies here")
    return folder


def slow_down(root: Path) -> str:
    """Commit a change of the kernels' own plug-in that makes every step wait for 20 ms; the commit's id."""
    (change,) = SLOW.glob("*.py")
    text = change.read_text(encoding="utf-8").replace('"0.05"', '"0.02"')
    assert '"0.02"' in text
    with (root / "kernels" / "dsv4_kernels" / "sglang_plugin" / "__init__.py").open("a", encoding="utf-8") as plugin:
        plugin.write("\n\n" + text)
    return commit(root, "slower")


def commit(folder: Path, message: str) -> str:
    """Commit everything in ``folder``; the commit's id."""
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def servers(report: Path) -> list[psutil.Process]:
    """Processes of servers whose log is in this report folder: by the log that they have open."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(f.path).parent == report for f in process.open_files() if f.path.endswith(".log")) or any(
                os.readlink(f"/proc/{process.pid}/fd/{n}").startswith(str(report)) for n in (1, 2)
            ):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def wait_for(what: Callable[[], Any], seconds: float) -> Any:
    """Poll until ``what()`` is true; its value, or an AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := what():
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not happen within {seconds:.0f} s")
