"""Picks the handful of lines that show a fault to a reader."""

from __future__ import annotations

from perfgate.diagnosis.cause import Cause
from perfgate.diagnosis.faults import Fault
from perfgate.diagnosis.scan import Scan

MAX_EVIDENCE = 10


def evidence(first: Fault, found: list[Fault], scan: Scan) -> tuple[str, ...]:
    """Lines for one fault, in file order: what was going on, the fault, its frame, the first lines of its cascade."""
    lines: dict[int, str] = {first.position: _line_at(first)}
    lines[first.hit.line_no] = first.hit.text
    traceback = first.traceback
    if traceback:
        lines[traceback.line_no] = traceback.head
        for number, line, _ in traceback.exceptions[:3]:
            lines[number] = line
            if traceback.frame:
                lines.setdefault(number - 1, traceback.frame)
    if first.rule == "capture":
        lines.update(before_of(scan.capture_lines, first.position)[-1:])
        _capture_cause(first, scan, lines)
    if first.cause is Cause.KV_POOL_EXHAUSTED:
        lines.update(scan.token_lines[:3])
    if first.cause is Cause.HANG_WATCHDOG:
        lines.update(before_of(scan.pool_lines, first.position)[-3:])
    if first.cause is Cause.GPU_OOM and scan.eager:
        lines[scan.eager[0]] = scan.eager[1]
    for other in found[1:]:
        if len(lines) >= MAX_EVIDENCE - 1:
            break
        if other.cause is not first.cause or other.rank != first.rank:
            lines.setdefault(other.position, _line_at(other))
    for hit in scan.hits:
        if hit.rule.name in ("sigquit", "subprocess") and not hit.after_shutdown and len(lines) < MAX_EVIDENCE:
            lines.setdefault(hit.line_no, hit.text)
            break
    return tuple(lines[number] for number in sorted(lines))[:MAX_EVIDENCE]


def _line_at(fault: Fault) -> str:
    if fault.traceback and fault.position == fault.traceback.line_no:
        return fault.traceback.head
    return fault.hit.text


def _capture_cause(first: Fault, scan: Scan, lines: dict[int, str]) -> None:
    number, line, _ = earlier_exception(first, scan) or (0, "", "")
    if line:
        lines[number] = line


def earlier_exception(first: Fault, scan: Scan) -> tuple[int, str, str] | None:
    """The exception line nearest before a fault whose own message is empty: (line number, line, text)."""
    nearest = None
    for traceback in scan.tracebacks:
        for number, line, text in traceback.exceptions:
            if number < first.hit.line_no and "graph failed:" not in text:
                nearest = (number, line, text)
    return nearest


def before_of(lines: list[tuple[int, str]], position: int) -> list[tuple[int, str]]:
    """Those of the numbered lines that stand before a position."""
    return [(number, line) for number, line in lines if number < position]
