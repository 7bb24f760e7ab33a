"""The tier `workflow` leaves its table in docs/workflow.md once all of it has passed on one state of the tree."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import platform
import subprocess
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "workflow.md"
ROWS = ROOT / "perf-report" / "workflow.json"
"""Results so far, of this state of the tree: the tier may run in parts (``-k``), or end early."""
STATE = (
    "perfgate",
    "kernels",
    "recipes",
    "tests/server",
    "tests/workflow",
    "tests/perf",
    ".github",
    "tox.ini",
    "conftest.py",
)
"""What the tier's results depend on."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Before -k leaves any out; and with paths given nobody knows what the whole tier is. Results of tests elsewhere do not
    # come by here, so the tier lies in this folder.
    if config.args == config.getini("testpaths"):
        config.stash[TIER] = {item.nodeid for item in items if item.get_closest_marker("workflow")}
        if strays := [name for name in config.stash[TIER] if not name.startswith("tests/workflow/")]:
            raise pytest.UsageError(f"marked workflow outside of tests/workflow: {', '.join(strays)}")


TIER = pytest.StashKey[set[str]]()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" or "PYTEST_XDIST_WORKER" in os.environ or "workflow" not in report.keywords:
        return
    row = {"outcome": report.outcome, "seconds": f"{report.duration:.0f}"}
    ROWS.parent.mkdir(exist_ok=True)
    ROWS.write_text(json.dumps({"tree": tree(), "rows": _rows() | {report.nodeid: row}}, indent=1))


def pytest_sessionfinish(session: pytest.Session) -> None:
    tier = session.config.stash.get(TIER, set())
    rows = _rows()
    if session.config.option.markexpr != "workflow" or not tier or not all(passed(rows.get(name)) for name in tier):
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    kind = f"{psutil.cpu_count()} processors, {platform.system()}, no GPU"
    lines = [
        "# The gate's workflow, run",
        "",
        f"Run on {today} with `python -m pytest -m workflow` ({kind}), commit {commit()}: {len(tier)} of {len(tier)} passed.",
        "Each case runs the workflow's own steps, or the guides' own commands, around a real SGLang server on its CPU engine;",
        "other work ran on the machine at the same time, so the seconds say nothing but that it ends.",
        "",
        "| case | seconds |",
        "|---|---:|",
    ]
    for name in sorted(tier):
        file, _, case = name.partition("::")
        said = case.removeprefix("test_").replace("_", " ")
        lines.append(f"| [{said}](../{file}) | {rows[name]['seconds']} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def commit() -> str:
    """HEAD, and whether what was run differs from it."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


def passed(row: dict[str, str] | None) -> bool:
    return row is not None and row["outcome"] == "passed"


def _rows() -> dict[str, dict[str, str]]:
    kept = json.loads(ROWS.read_text()) if ROWS.is_file() else {}
    return kept["rows"] if kept.get("tree") == tree() else {}


@functools.cache
def tree() -> str:
    """A digest of what the results depend on: those of another state say nothing of this one."""
    digest = hashlib.sha256()
    for name in STATE:
        path = ROOT / name
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        for file in files:
            if "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
