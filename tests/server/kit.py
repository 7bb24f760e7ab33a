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

from perfgate.pytest_options import PLUGIN

ROOT = Path(__file__).parents[2]
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


def start(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """``pytest -m perf`` with a report of its own, its output going to ``folder/out.txt``; ``environment`` is put in
    front of this process's: a PYTHONPATH before the one that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(ROOT / "tests" / "perf"),
        "-m",
        "perf",
        "-p",
        "no:cacheprovider",
        "-p",
        PLUGIN,
    ]
    command += [f"--report={folder / 'report'}", f"--rootdir={ROOT}", f"-c{ROOT / 'pyproject.toml'}", *arguments]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    for name, value in (environment or {}).items():
        env[name] = os.pathsep.join(filter(None, (value, env.get(name))))
    with (folder / "out.txt").open("w") as sink:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=sink,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
            preexec_fn=_listen_to_ctrl_c,
        )


def _listen_to_ctrl_c() -> None:
    """Tests that run in a shell's background ignore SIGINT, and their children would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen[str], folder: Path, seconds: float = 400) -> Outcome:
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
