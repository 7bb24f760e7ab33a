"""Apply a fault to a copy of the tree and see whether the tests that should notice it do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from faults import Fault

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(5)
TIMEOUT_S = 600
COPIED = ("pyproject.toml", "kernels", "tests/correctness")
# pytest's exit codes for a run that says nothing about the code: interrupted, internal error, wrong use, no tests.
NO_VERDICT = (2, 3, 4, 5)


@dataclass(frozen=True)
class Kill:
    """The first run that noticed: the test, hypothesis's seed, seconds of all runs until then."""

    killer: str
    seed: int
    seconds: float


class HarnessFault(RuntimeError):
    """The fault could not be applied, or a run of the tests gave no verdict."""


def copy_tree(target: Path) -> Path:
    """Copy what the correctness tests need, and nothing that was built or cached."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.pyc", ".pytest_cache")
    for name in COPIED:
        source, copy = ROOT / name, target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=ignore)
        else:
            shutil.copy2(source, copy)
    return target


def apply(fault: Fault, tree: Path) -> None:
    """Replace the fault's text in the copy; raise HarnessFault unless it occurs exactly once."""
    path = tree / fault.file
    text = path.read_text()
    times = text.count(fault.old)
    if times != 1:
        raise HarnessFault(f"{fault.file} holds {fault.old!r} {times} times: update tests/mutations/faults.py")
    path.write_text(text.replace(fault.old, fault.new))


def run(tree: Path, killer: str, seed: int) -> tuple[bool, str]:
    """Run one test of the copy with the ci profile and a seed; return whether it failed, and its output.

    A test process that a signal ends (an illegal access) has failed too.
    """
    # pytest's own variables (tox's options, plug-ins, a worker's name) speak of this checkout and not of the copy.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "HYPOTHESIS_PROFILE": "ci", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(tree), str(tree / "kernels")])
    # The copy must not meet compilations or examples of another.
    environment["TRITON_CACHE_DIR"] = str(tree / ".triton")
    command = [sys.executable, "-m", "pytest", f"tests/correctness/{killer}", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:randomly", f"--hypothesis-seed={seed}", "--tb=line"]
    try:
        child = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as expired:
        raise HarnessFault(f"{killer} ran past {TIMEOUT_S} s with seed {seed}") from expired
    output = child.stdout[-3000:] + child.stderr[-1000:]
    if child.returncode in NO_VERDICT:
        raise HarnessFault(f"{killer} gave no verdict (exit code {child.returncode}):\n{output}")
    return child.returncode != 0, output


def hunt(fault: Fault, tree: Path) -> Kill | None:
    """Run the fault's killers, seed after seed, until one notices it; None if none does."""
    apply(fault, tree)
    start = time.monotonic()
    for seed in SEEDS:
        for killer in fault.killers:
            noticed, _ = run(tree, killer, seed)
            if noticed:
                return Kill(killer, seed, time.monotonic() - start)
    return None
