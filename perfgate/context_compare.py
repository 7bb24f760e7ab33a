"""``python -m perfgate compare-context``: is a step as long with another ``--context-length``? (pure but for ``main``)"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from perfgate.baseline.differences import differences
from perfgate.report import jsonfile, words
from perfgate.result import CheckResult, Outcome, PointResult, RunResult
from perfgate.stats import two_sample_shift

BOUND = 0.02
"""Relative difference of the step times that still counts as none."""

BETWEEN_START = 0.001
"""Relative spread between server starts that is assumed: a recipe's own default. Each result is one start, or few."""

LEVEL = 0.025
Z95 = 1.959963984540054

ALLOWED = ("context_length", "context_len")
"""Server arguments that may differ, and must: at least one."""


def main(arguments: Sequence[str]) -> int:
    """Print a row a point. 0 where all pass, 1 where not, 2 for files that cannot be read."""
    parser = argparse.ArgumentParser(
        "python -m perfgate compare-context",
        description="Is a step as long where another context length is reserved? Exits 0 where every point passes.",
    )
    parser.add_argument(
        "results",
        nargs=2,
        type=Path,
        metavar="RESULT.json",
        help="results of two recipes that differ in context_length alone",
    )
    given = parser.parse_args(arguments)
    try:
        one, other = (jsonfile.read(path) for path in given.results)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    found = compare(one, other)
    for row in found:
        value = "" if row.value is None else f" {row.value:+.2%}, bound {BOUND:.0%}"
        print(f"{words.GLYPHS[row.outcome]} {row.outcome} {row.name}:{value} ({row.why})")
    return 0 if all(row.outcome.passes for row in found) else 1


def compare(one: RunResult, other: RunResult) -> list[CheckResult]:
    """A row that says whether the two may be compared, and one for each point of either: ``value`` is how much longer the
    second's step is (relative). PASS where the whole 95 % interval is within BOUND, REGRESSION where none of it is,
    whichever side is slower; INCONCLUSIVE between."""
    first, second = ({p.concurrency: p for p in run.points} for run in (one, other))
    rows = [_alike(one, other)]
    rows += [_point(c, first.get(c), second.get(c)) for c in sorted(first.keys() | second.keys())]
    if not first and not second:
        rows.append(CheckResult(name="points", outcome=Outcome.MISSING, why="neither result has a point"))
    return rows


def _alike(one: RunResult, other: RunResult) -> CheckResult:
    name = "context length alone differs"
    sides = [run.fingerprint.get("server") for run in (one, other)]
    if not all(sides):
        why = "a result has no server arguments, so nothing shows what differs"
        return CheckResult(name=name, outcome=Outcome.MISSING, why=why)
    found = differences(one.fingerprint, other.fingerprint)
    wanted = [d for d in found if d.split(":")[0] in {f"server.{key}" for key in ALLOWED}]
    others = [d for d in found if d not in wanted]
    if one.commit != other.commit:
        others.append(f"commit: {one.commit} -> {other.commit}")
    if others or not wanted:
        why = "; ".join(others) or "both have the same context length"
        return CheckResult(name=name, outcome=Outcome.INVALID, why=why)
    return CheckResult(name=name, outcome=Outcome.PASS, why="; ".join(wanted))


def _point(concurrency: int, one: PointResult | None, other: PointResult | None) -> CheckResult:
    name = f"step time C={concurrency}"
    steps = [_steps(point) for point in (one, other)]
    for point, values, which in zip((one, other), steps, ("first", "second"), strict=True):
        if point is None or point.outcome in (Outcome.MISSING, Outcome.INVALID) or len(values) < 2:
            state = "lacks this point" if point is None else f"has {len(values)} samples of it, {point.outcome}"
            return CheckResult(name=name, outcome=Outcome.MISSING, bound=BOUND, why=f"the {which} result {state}")
    logs = [[math.log(v) for v in values] for values in steps]
    shift = two_sample_shift(logs[1], logs[0], LEVEL)
    between = Z95 * BETWEEN_START * math.sqrt(2)
    low = math.expm1(shift.estimate - math.hypot(shift.estimate - shift.low, between))
    high = math.expm1(shift.estimate + math.hypot(shift.high - shift.estimate, between))
    value = math.expm1(shift.estimate)
    why = f"[{low:+.2%}, {high:+.2%}] from {len(steps[0])} and {len(steps[1])} samples"
    if low >= -BOUND and high <= BOUND:
        outcome = Outcome.PASS
    elif low > BOUND or high < -BOUND:
        outcome = Outcome.REGRESSION
        why += "; a step's time depends on the length of context that is reserved"
    else:
        outcome = Outcome.INCONCLUSIVE
        why += "; the interval spans the bound: take more samples (--samples)"
    return CheckResult(name=name, outcome=outcome, value=value, bound=BOUND, why=why)


def _steps(point: PointResult | None) -> list[float]:
    rows = [] if point is None else point.samples
    return [row.step_ms for row in rows if row.counted and row.step_ms is not None and row.step_ms > 0]
