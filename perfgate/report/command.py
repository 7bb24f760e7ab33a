"""``python -m perfgate report``: a stored result's summary and page, made anew, fit to be committed (edge)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from perfgate import redact, report
from perfgate.result import RunResult


def main(arguments: Sequence[str]) -> int:
    """Write ``result.json``, ``summary.md`` and ``report.html``. 0; 1 for a result that cannot be read or a folder that
    cannot be written, with the reason on stderr; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        "python -m perfgate report", description="Make a stored result's summary and page anew."
    )
    parser.add_argument("result", type=Path, metavar="RESULT.json", help="what a run left in its report folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the three files go")
    given = parser.parse_args(arguments)
    try:
        report.save(publishable(report.jsonfile.read(given.result)), given.out)
    except (report.ResultError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    print(f"{given.out}: result.json, summary.md, report.html")
    return 0


def publishable(result: RunResult) -> RunResult:
    """The result without this machine's paths and without secrets, in what a user typed and was told too."""
    return RunResult.model_validate(redact.redact(result.model_dump(mode="json")))
