"""A pytest plug-in that notes each test as it ends, and the table made of the notes (``deep.sh`` uses both).

As a plug-in (``-p deep_report``) it appends to the file that DEEP_RESULTS names; as a program,
``python3 deep_report.py RESULTS CODE`` prints a line a file and exits with 0 if pytest's exit status CODE was 0 and
every collected test ran and passed.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    _note({"collected": len(ids)})


def pytest_runtest_logreport(report: Any) -> None:
    # Workers send their reports to the controller, which alone writes.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return
    if report.when == "call" or report.outcome != "passed":
        text = "" if report.outcome == "passed" else str(report.longrepr)[-2500:]
        _note({"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration, "text": text})


def _note(entry: dict[str, Any]) -> None:
    with Path(os.environ["DEEP_RESULTS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def main(path: str, code: str) -> int:
    notes = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    tests = {note["test"]: note for note in notes if "test" in note}
    collected = max((note["collected"] for note in notes if "collected" in note), default=0)
    by_file: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, note in tests.items():
        by_file[Path(name.partition("::")[0]).name].append(note)
    bad = [note for note in tests.values() if note["outcome"] != "passed"]
    for note in bad:
        print(f"--- {note['outcome']} {note['test']}\n{note['text'][-900:]}")
    print(f"{'file':40} {'tests':>6} {'passed':>6} {'other':>6} {'seconds':>8}  slowest")
    for name, entries in sorted(by_file.items()):
        good = sum(entry["outcome"] == "passed" for entry in entries)
        slow = max(entries, key=lambda entry: entry["seconds"])
        where = slow["test"].partition("::")[2][:60]
        total = sum(entry["seconds"] for entry in entries)
        print(
            f"{name:40} {len(entries):6} {good:6} {len(entries) - good:6} {total:8.0f}  {slow['seconds']:.0f} s {where}"
        )
    print(f"{len(tests)} of {collected} tests ended, {len(bad)} not passed, pytest's exit status {code}")
    return 0 if not bad and code == "0" and len(tests) == collected and collected else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
