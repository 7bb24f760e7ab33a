"""A point's past runs: those recorded in its baseline file and those of this machine's own history, and what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfgate import history
from perfgate.baseline import BaselineFile
from perfgate.baseline.model import METRICS, MetricName
from perfgate.baseline.schema import HistoryEntry
from perfgate.result import Outcome, PointResult

Past = Mapping[int, Sequence[HistoryEntry]]

ADVICE = (
    "each run was within its own noise, so no single one failed: find the commit between them, or run the first state "
    "beside this one (--against-commit)"
)


def entries(
    points: Sequence[PointResult], date: str, commit: str | None, recording: bool = False
) -> dict[int, HistoryEntry]:
    """What one run adds to the history: the medians of the points that let it through, or that it records.

    A point that fails adds nothing: its state is not merged, and three tries at a slow change would look like a new level.
    """
    found: dict[int, HistoryEntry] = {}
    for point in points:
        values = {m.name: m.value for m in point.metrics if m.value is not None and m.value > 0}
        kept = point.outcome.passes or (recording and point.outcome not in (Outcome.MISSING, Outcome.INVALID))
        if kept and "throughput" in values:
            found[point.concurrency] = HistoryEntry(
                date=date,
                commit=commit,
                throughput=values["throughput"],
                step_time=values.get("step_time"),
                outcome=str(point.outcome),
            )
    return found


def merged(file: BaselineFile | None, local: Past, own: Mapping[int, HistoryEntry]) -> dict[int, list[HistoryEntry]]:
    """All known runs by point, oldest first, the present one (``own``) last."""
    found: dict[int, list[HistoryEntry]] = {}
    stored = {c: file.stored_point(c) for c in file.concurrencies} if file is not None else {}
    for concurrency in sorted({*stored, *local, *own}):
        point = stored.get(concurrency)
        rows = [*(point.history if point is not None else []), *local.get(concurrency, [])]
        rows.sort(key=lambda row: row.date)
        found[concurrency] = [*rows, *([own[concurrency]] if concurrency in own else [])]
    return {concurrency: rows for concurrency, rows in found.items() if rows}


def as_extra(past: Past) -> dict[str, Any]:
    """The ``history`` part of a result: medians and change points of throughput by point."""
    made: dict[str, Any] = {}
    turns: dict[str, list[int]] = {}
    for concurrency, rows in past.items():
        made[str(concurrency)] = [{"date": r.date, "commit": r.commit, "median": r.throughput} for r in rows]
        turns[str(concurrency)] = [c.index for c in history.change_points([r.throughput for r in rows])]
    if any(turns.values()):
        made["change_points"] = turns
    return made


def findings(past: Past) -> list[str]:
    """What no single run shows: slow drift and changes of level, one sentence a point and metric that got worse."""
    said = []
    for concurrency, rows in past.items():
        for name, metric in METRICS.items():
            known = [(row, value) for row in rows if (value := getattr(row, name)) is not None]
            one = _finding(concurrency, name, metric.sign, known)
            if one:
                said.append(one)
    return said


def _finding(concurrency: int, name: MetricName, sign: int, known: Sequence[tuple[HistoryEntry, float]]) -> str:
    values = [value for _, value in known]
    what = f"C={concurrency}: {name.replace('_', ' ')}"
    levels = history.change_points(values)
    last = next((c for c in reversed(levels) if _stands(c, levels, sign)), None)
    if last is not None:
        before, since = known[last.index - 1][0], known[last.index][0]
        span = f"between {_where(before)} and {_where(since)}"
        lost = levels[-1].after / last.before - 1
        return f"{what} has been at a worse level ({lost:+.1%}) since {span}; {ADVICE}"
    drift = history.slow_drift(values)
    if drift is not None and sign * drift.total < 0:
        return f"{what} has drifted by {drift.total:+.1%} over {drift.runs} runs since {_where(known[0][0])}; {ADVICE}"
    return ""


def _stands(one: history.ChangePoint, levels: Sequence[history.ChangePoint], sign: int) -> bool:
    """Whether a level is worse than the one before it and no later one has made up for that."""
    later = [c.after for c in levels if c.index >= one.index]
    return all(sign * (after / one.before - 1) <= -history.LEAST_CHANGE for after in later)


def _where(entry: HistoryEntry) -> str:
    return f"{entry.date} ({entry.commit})" if entry.commit else entry.date
