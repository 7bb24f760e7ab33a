"""The table at the end of a run, for a terminal."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from perfgate.report import words
from perfgate.result import MetricResult, Outcome, PointResult, RunResult

WIDTH = 120
_HEAD = ("C", "asked", "completed", "tokens/s [interval]", "floor", "baseline", "step ms [interval]", "verdict")


def render(result: RunResult, width: int = WIDTH) -> str:
    """The run as plain text of at most ``width`` columns (80 or more), verdict first and no line left to wrap."""
    lines = [words.headline(result), _context(result), ""]
    lines += _table(_rows(result))
    lines += [""] if result.points else ["no point was measured", ""]
    for point in result.points:
        lines += _explain(point)
    lines += [f"NOT RUN: {words.one_line(name)}" for name in result.not_run]
    for check in result.checks:
        bound = "" if check.bound is None else f", bound {words.number(check.bound)}"
        value = f"{words.number(check.value)} {check.unit}".strip()
        lines.append(
            f"{words.GLYPHS[check.outcome]} {check.outcome} {check.name}: {value}{bound}"
            + (f" ({check.why})" if check.why else "")
        )
        if not check.outcome.passes:
            lines += [f"  | {words.one_line(line)}" for line in check.evidence]
            lines += [f"  next: {check.advice}"] if check.advice else []
    lines += [f"differs from the baseline: {d}" for d in result.fingerprint_differences]
    lines += [f"loosened floor: {item}" for item in _items(result, "loosened")]
    lines += [f"orphaned baseline: {item}" for item in _items(result, "orphaned_baselines")]
    lines += [f"note: {note}" for note in result.notes]
    lines.append(_times(result))
    return "\n".join(out for line in lines for out in _fit(line, width)) + "\n"


def _context(result: RunResult) -> str:
    parts = [words.JUDGED_BY[result.judged_by], f"{result.interval_level:.0%} intervals"]
    if result.baseline_file:
        parts.append(result.baseline_file)
    return "; ".join(parts)


def _times(result: RunResult) -> str:
    parts = [
        f"{words.number(result.seconds, 's')} s in all",
        f"server start {words.number(result.server_seconds, 's')} s",
    ]
    parts.append(f"client {words.number(result.client_seconds, 's')} s")
    if result.overhead_share is not None:
        parts.append(f"overhead {words.number(result.overhead_share, '%')}")
    return ", ".join(parts)


def _rows(result: RunResult) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for point in result.points:
        speed, step = words.metric(point, "throughput"), words.metric(point, "step_time")
        rows.append(
            (
                str(point.concurrency),
                words.number(words.asked(point), "count") if point.samples else words.ABSENT,
                words.number(words.completed(point), "count") if point.samples else words.ABSENT,
                _interval(speed),
                words.number(speed.floor if speed else None, "tok/s"),
                words.number(speed.baseline if speed else None, "tok/s"),
                _interval(step),
                f"{words.GLYPHS[point.outcome]} {point.outcome}",
            )
        )
    return rows


def _interval(metric: MetricResult | None) -> str:
    return words.ABSENT if metric is None else words.interval(metric)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[i]) for row in [_HEAD, *rows]) for i in range(len(_HEAD))]
    for row in [_HEAD, tuple("-" * w for w in widths), *rows]:
        cells = [cell.rjust(w) for cell, w in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*cells, row[-1]])


def _explain(point: PointResult) -> list[str]:
    samples = f"{words.counted(point)} of {len(point.samples)} samples counted"
    lines = [
        f"C={point.concurrency}: {point.why} ({samples})" if point.samples else f"C={point.concurrency}: {point.why}"
    ]
    lines += [f"  {m.name}: {m.why}" for m in point.metrics if m.why and m.outcome is not Outcome.PASS]
    if point.outcome in (Outcome.PASS, Outcome.IMPROVED):
        return lines + ([f"  next: {point.advice}"] if point.advice else [])
    if point.cause != "NONE":
        lines.append(f"  cause: {point.cause}")
    lines += [f"  | {words.one_line(line)}" for line in point.evidence[:10]]
    if len(point.evidence) > 10:
        lines.append(f"  | … {len(point.evidence) - 10} more lines in the JSON result")
    if point.advice:
        lines.append(f"  next: {point.advice}")
    return lines


def _items(result: RunResult, name: str) -> list[str]:
    items = result.extra.get(name) or []
    return [words.item(item) for item in (items if isinstance(items, list) else [items])]


def _fit(line: str, width: int) -> list[str]:
    """Wrap one line, counting wide East Asian characters as the two columns that they take."""
    flat = words.plain(line).replace("\n", " ").replace("\t", " ")
    if sum(_columns(c) for c in flat) <= width:
        return [flat]
    wide = any(_columns(c) == 2 for c in flat)
    indent = " " * (len(flat) - len(flat.lstrip()) + 2)
    return textwrap.wrap(
        flat, width // 2 if wide else width, subsequent_indent=indent, break_on_hyphens=False, replace_whitespace=False
    ) or [""]


def _columns(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
