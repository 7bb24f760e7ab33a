"""Part of a log by time."""

from __future__ import annotations

from dataclasses import replace

from perfgate.serverlog.records import DecodeBatch, Event, PrefillBatch, ServerLog


def between(log: ServerLog, start: float, end: float, slack: float = 1.0) -> ServerLog:
    """The records from ``start`` to ``end`` (seconds since the epoch), with the facts and ready line of the whole.

    Log times are whole seconds cut off, hence ``slack`` seconds before ``start``. A record without a time (native code)
    belongs to the record with a time before it in the file.
    """
    records: list[PrefillBatch | DecodeBatch | Event] = [*log.prefill, *log.decode, *log.events]
    records.sort(key=lambda record: record.line_no)
    inside = set()
    current: float | None = None
    for record in records:
        current = current if record.time is None else record.time
        if current is not None and start - slack <= current <= end:
            inside.add(record.line_no)
    return lines_only(log, inside)


def lines_only(log: ServerLog, lines: set[int] | range) -> ServerLog:
    """The records of the line numbers given, with the facts and ready line of the whole."""
    return replace(
        log,
        prefill=tuple(r for r in log.prefill if r.line_no in lines),
        decode=tuple(r for r in log.decode if r.line_no in lines),
        events=tuple(r for r in log.events if r.line_no in lines),
    )
