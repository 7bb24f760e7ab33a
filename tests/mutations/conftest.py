"""The tier `mutations`: all faults with `-m mutations`, a fixed few without; its table goes to docs/mutations.md."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))
ROOT = HERE.parents[1]
TABLE = ROOT / "docs" / "mutations.md"
ROWS = ROOT / "perf-report" / "mutations.json"
"""Results so far, of this state of the tree: the tier may run in parts (``-k mla``, ``-k "not mla"``), or end early."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "mutations: faults put into a copy of the tree, which the tests must notice")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "mutations" in config.getoption("-m", default=""):
        return
    slow = [item for item in items if HERE in Path(item.path).parents and item.get_closest_marker("mutations")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # Workers report to the controller, which alone writes.
    row = dict(report.user_properties)
    if report.when == "call" and "fault" in row and "PYTEST_XDIST_WORKER" not in os.environ:
        rows = _rows() | {str(row["fault"]): {key: str(value) for key, value in row.items()}}
        ROWS.parent.mkdir(exist_ok=True)
        ROWS.write_text(json.dumps({"tree": _tree(), "rows": rows}, indent=1))


def _rows() -> dict[str, dict[str, str]]:
    kept = json.loads(ROWS.read_text()) if ROWS.is_file() else {}
    return kept["rows"] if kept.get("tree") == _tree() else {}


@functools.cache
def _tree() -> str:
    """A digest of the kernels, their tests and the faults: results of another state say nothing of this one."""
    digest = hashlib.sha256()
    for folder in ("kernels/dsv4_kernels", "tests/correctness", "tests/mutations"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def pytest_sessionfinish(session: pytest.Session) -> None:
    from faults import FAULTS

    rows = {} if hasattr(session.config, "workerinput") else _rows()
    if set(rows) != {fault.name for fault in FAULTS}:
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    killed = sum(row["killed"] == "True" for row in rows.values())
    lines = [
        "# Mutation check",
        "",
        f"Run on {today} with `python -m pytest tests/mutations -m mutations`: {killed} of {len(FAULTS)} faults",
        "noticed, each by a property compared with an oracle, at the `ci` profile's example count with up to 5 seeds.",
        "",
        "| fault | file | noticed by | seeds tried | seconds |",
        "|---|---|---|---:|---:|",
    ]
    for fault in FAULTS:
        row = rows[fault.name]
        lines.append(
            f"| {fault.name} | {Path(fault.file).name} | {row['killer']} | {row['seeds']} | {row['seconds']} |"
        )
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
