"""The field's faults and the tests that cover them: ``python tests/field_cases.py [--write docs/faults.md]``.

Exits with 1 when a row has no test or a test names a row that does not exist, and says which. ``--ran FILE`` takes in the
JUnit file of a whole run of the tier (``pytest -m faults --junit-xml FILE``), whose dated result then stands in the
document until the next; it is kept in ``field_cases_ran.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RAN = HERE / "field_cases_ran.json"
TITLES = {
    "C": "Crashes, hangs, failed starts",
    "B": "Traps of the benchmark client",
    "X": "Strangers",
    "R": "Silent regressions",
    "N": "Noise",
    "K": "Kernels",
}


@dataclass(frozen=True)
class Row:
    """One fault of the field: its id, what happened, and what the suite comes to."""

    id: str
    fault: str
    verdict: str


def rows(path: Path = HERE / "field_cases.toml") -> list[Row]:
    """The rows of the data file, in its order."""
    groups = tomllib.loads(path.read_text(encoding="utf-8"))
    return [Row(id_, fault, verdict) for group in groups.values() for id_, (fault, verdict) in group.items()]


class _Collector:
    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = defaultdict(list)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        # Not at the end of the collection: what a default option deselects is covered all the same.
        name = item.nodeid.partition("[")[0]  # the parameters of one test are one test
        for marker in item.iter_markers("field_case"):
            for id_ in marker.args:
                if name not in self.tests[id_]:
                    self.tests[id_].append(name)


def tests_by_row(arguments: list[str]) -> dict[str, list[str]]:
    """The tests that claim each row, as pytest collects them from ``arguments`` (paths, options).

    Raises SystemExit when the collection fails: a table made of half the tests would look whole.
    """
    collector = _Collector()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *arguments], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"pytest could not collect {' '.join(arguments)}:\n{output.getvalue()}")
    return dict(collector.tests)


def faults(wanted: list[Row], tests: dict[str, list[str]]) -> list[str]:
    """What is wrong with the coverage: rows without a test, tests of rows that do not exist."""
    known = {row.id for row in rows()}
    missing = [f"{row.id} has no test: {row.fault}" for row in wanted if not tests.get(row.id)]
    unknown = [f"{id_} is no row of field_cases.toml, but {names[0]} names it" for id_, names in tests.items()]
    return missing + [text for text in unknown if text.split()[0] not in known]


def table(wanted: list[Row], tests: dict[str, list[str]]) -> str:
    """The rows as markdown, one table a group."""
    lines = ["# Faults of the field", ""]
    lines += ["Made by `python tests/field_cases.py --write docs/faults.md`; not edited by hand.", ""]
    group = ""
    for row in wanted:
        if row.id[0] != group:
            group = row.id[0]
            lines += [f"## {TITLES[group]}", "", "| row | what happened | verdict | tests |", "|---|---|---|---|"]
        names = "<br>".join(f"`{name}`" for name in tests.get(row.id, [])) or "**none**"
        lines.append(f"| {row.id} | {row.fault} | {row.verdict} | {names} |")
        following = wanted[wanted.index(row) + 1 :]
        if not following or following[0].id[0] != group:
            lines.append("")
    return "\n".join(lines)


def read_run(paths: list[Path], note: str = "") -> dict[str, object]:
    """The result of a run of pytest from its JUnit files (one, or one for each part that was run by itself): date, machine,
    and for each test what came of it and in how many seconds."""
    suites = [suite for path in paths for suite in ET.parse(path).getroot().iter("testsuite")]
    tests = []
    for case in (case for suite in suites for case in suite.iter("testcase")):
        if not case.get("name"):  # what was under way when the run was stopped
            continue
        verdict = next((kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None), "passed")
        module = (case.get("classname") or "").replace("tests.", "", 1).replace(".", "/")
        tests.append([f"{module}.py::{case.get('name')}", verdict, round(float(case.get("time") or 0), 1)])
    return {
        "date": max(suite.get("timestamp") or "" for suite in suites)[:10],
        "seconds": round(sum(float(suite.get("time") or 0) for suite in suites)),
        "parts": len(suites),
        "note": note,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[2], 1),
        "tests": tests,
    }


STANDS_IN = """\
Faults are made, not mocked: signals to the processes of a real CPU server, `RLIMIT_AS` on its scheduler, a listener on its
port, a stranger's requests, its log cut or moved, SIGINT to the gate. Two things a test may not do to a machine that others
use. Its clock is not set: `time.time` of the server, the client and the gate is, by the same hour, and the steady clocks stay
right (`tests/faults/shims`). Its disk is not filled: the kernel is told to let no file of the gate grow further
(`RLIMIT_FSIZE`), and a run is held at the moment of writing by an `fsync` that waits.
"""


def run_table(ran: dict[str, object]) -> str:
    """The last whole run as markdown."""
    tests: list[tuple[str, str, float]] = ran["tests"]  # type: ignore[assignment]
    passed = sum(verdict == "passed" for _, verdict, _ in tests)
    one = ran["parts"] == 1
    title = "The last whole run of the tier" if one else "The last result of each test of the tier"
    where = f"on {ran['cores']} cores that had {ran['load']} processes to run (mean of its last 15 minutes)"
    what = f"**{passed} of {len(tests)} passed** in {ran['seconds']} s"
    if one:
        said = f"`pytest -m faults` on {ran['date']}: {what}, {where}."
    else:
        said = f"Not one run: put together from {ran['parts']} runs of parts of the tier, the last on {ran['date']}: {what}, {where}."
    lines = [f"## {title}", "", said, *([str(ran["note"])] if ran.get("note") else [])]
    lines += [
        "",
        *STANDS_IN.splitlines(),
        "",
        "| test | result | seconds |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {verdict} | {seconds:g} |" for name, verdict, seconds in tests]
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Prints or writes the table. Returns 1 when the coverage has a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="write the table there instead of printing it")
    parser.add_argument("--ran", type=Path, nargs="+", help="the JUnit files of a whole run of the tier, to be kept")
    parser.add_argument("--note", default="", help="what has to be known of that run, kept with it")
    parser.add_argument("--rows", default="C,B,X,R,N,K", help="groups or ids, by comma (default: all)")
    parser.add_argument("arguments", nargs="*", help="what pytest collects from (default: tests)")
    options = parser.parse_args(argv)
    chosen = options.rows.split(",")
    wanted = [row for row in rows() if row.id in chosen or row.id[0] in chosen]
    tests = tests_by_row(options.arguments or [str(HERE)])
    if options.ran:
        RAN.write_text(json.dumps(read_run(options.ran, options.note), indent=1) + "\n", encoding="utf-8")
    text = table(wanted, tests)
    if RAN.is_file():
        text += "\n" + run_table(json.loads(RAN.read_text(encoding="utf-8")))
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(text, encoding="utf-8")
    else:
        print(text)
    found = faults(wanted, tests)
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
