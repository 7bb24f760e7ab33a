"""``python -m perfgate kernels judge|record|show|report RUN.json...``: what was timed on a card, on any machine."""

from __future__ import annotations

import argparse
import datetime
import sys
from pathlib import Path

from perfgate.baseline import BaselineError
from perfgate.fingerprint import git_commit
from perfgate.kernelbench import baseline, judge, recording
from perfgate.kernelbench.page import render as render_page
from perfgate.kernelbench.rows import Run, RunError, load
from perfgate.kernelbench.table import render
from perfgate.report.jsonfile import write_text

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    """Run one command: 0 where everything passes, 1 where something does not, 2 where a file cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        runs = [load(path) for path in options.run]
        if options.command == "show":
            for run in runs:
                print(render(run), end="")
            return 0
        return {"judge": _judge, "record": _record, "report": _report}[options.command](options, runs)
    except (RunError, BaselineError) as error:
        print(error, file=sys.stderr)
        return 2


def _judge(options: argparse.Namespace, runs: list[Run]) -> int:
    found = judge.judge(runs, baseline.load(_path(options, runs)))
    print(judge.render(found), end="")
    return 0 if all(one.outcome.passes for one in found) else 1


def _record(options: argparse.Namespace, runs: list[Run]) -> int:
    done = recording.record(
        _path(options, runs),
        runs,
        reason=options.reason,
        recorded_at=runs[-1].date or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=options.commit or runs[-1].commit or git_commit(ROOT),
        clock_mhz=options.clock,
    )
    for name in ("new", "tightened", "loosened"):
        keys = getattr(done, name)
        print(f"{name}: {len(keys)}{': ' + ', '.join(keys) if keys else ''}")
    print(done.path)
    return 0


def _report(options: argparse.Namespace, runs: list[Run]) -> int:
    for path, run in zip(options.run, runs, strict=True):
        page = path.with_suffix(".html")
        write_text(page, render_page(run))
        print(page)
    return 0


def _path(options: argparse.Namespace, runs: list[Run]) -> Path:
    return baseline.path_for(options.baselines, runs[0].fingerprint)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m perfgate kernels", description="What was timed on a card, looked at on any machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    words = {
        "judge": "compare with the card's baseline",
        "record": "make these runs of one state the card's baseline; what it replaces is kept",
        "show": "print the table",
        "report": "write a page with the scaling plots beside each file",
    }
    for name, text in words.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("run", nargs="+", type=Path, metavar="RUN.json", help="what --benchmark-json wrote")
        if name in ("judge", "record"):
            command.add_argument(
                "--baselines",
                type=Path,
                metavar="DIR",
                default=ROOT / "baselines",
                help="folder (default: baselines)",
            )
        if name == "record":
            command.add_argument(
                "--reason", default="", metavar="TEXT", help="why; kept in the file, needed where a time gets slower"
            )
            command.add_argument(
                "--clock",
                type=int,
                default=None,
                metavar="MHZ",
                help="what the SM clock was held at (default: the card's highest; another is refused)",
            )
            command.add_argument("--commit", default=None, help="the state that was timed (default: the run's own)")
    return parser
