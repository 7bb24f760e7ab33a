"""The tier `mutations`: all faults with `-m mutations`, a fixed few without; its table goes to docs/mutations.md."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))
TABLE = HERE.parents[1] / "docs" / "mutations.md"


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
    row = dict(report.user_properties)
    if report.when == "call" and "fault" in row:
        _rows[str(row["fault"])] = {key: str(value) for key, value in row.items()}


_rows: dict[str, dict[str, str]] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    from faults import FAULTS

    # Workers report to the controller, which alone has all rows; a part of the faults makes no table.
    if hasattr(session.config, "workerinput") or set(_rows) != {fault.name for fault in FAULTS}:
        return
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    killed = sum(row["killed"] == "True" for row in _rows.values())
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
        row = _rows[fault.name]
        lines.append(
            f"| {fault.name} | {Path(fault.file).name} | {row['killer']} | {row['seeds']} | {row['seconds']} |"
        )
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")
