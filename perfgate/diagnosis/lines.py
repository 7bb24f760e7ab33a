"""Walks a log line by line without copying it whole, and takes SGLang's line prefix apart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

CHUNK = 1 << 20
"""Characters split at once: the log itself is the one thing of its size in memory."""

# "[2026-11-15 04:01:51.123 DP0 TP3] text"; Ray puts "(Name pid=1, ip=…) " ahead; no rank at all with tp=1.
_PREFIX = re.compile(
    r"(?:\x1b\[[0-9;]*m)*(?:\([^()]{1,80}\) )?"
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?((?: [A-Z][A-Z_]*\d+)*)\] ?"
)
# c10d's own prefix: "[rank1]:[E210 02:06:33.347 ProcessGroupNCCL.cpp:1595] text".
_C10D = re.compile(r"\[rank(\d+)\]:")

MAX_QUOTED = 1000
"""Characters of one line that evidence quotes at most: server arguments alone can take 10,000."""

MAX_SEARCHED = 20_000
"""Characters of one line that are searched: it bounds the work on a line without end, and no message starts later."""


def chunks(text: str) -> Iterator[str]:
    """Yield stretches of whole lines, CHUNK characters and the rest of the last line each."""
    start, size = 0, len(text)
    while start < size:
        end = text.find("\n", start + CHUNK)
        end = size if end < 0 else end + 1
        yield text[start:end]
        start = end


def segments(text: str) -> Iterator[str]:
    """Yield each line; a carriage return ends one too, as in progress bars. At most a chunk is held at a time."""
    for chunk in chunks(text):
        yield from chunk.splitlines()


def split_prefix(line: str) -> tuple[str | None, str | None, str]:
    """Return (time stamp as written, rank, rest). Lines of ptxas, CUDA or tracebacks have neither stamp nor rank."""
    match = _PREFIX.match(line)
    if match:
        return match.group(1), match.group(2).strip() or None, line[match.end() :]
    match = _C10D.match(line)
    if match:
        return None, f"rank{match.group(1)}", line[match.end() :]
    return None, None, line


def seconds_between(first: str | None, second: str | None) -> float | None:
    """Seconds from one "YYYY-mm-dd HH:MM:SS" stamp to another, None where either is missing or no real date."""
    if first is None or second is None:
        return None
    try:
        start, end = (datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S") for stamp in (first, second))
    except ValueError:
        return None
    return (end - start).total_seconds()


def quote(line: str, around: int = 0) -> str:
    """The line itself, or of a very long one the stretch around the character ``around``; always a substring."""
    if len(line) <= MAX_QUOTED:
        return line
    start = max(0, min(around - MAX_QUOTED // 4, len(line) - MAX_QUOTED))
    return line[start : start + MAX_QUOTED]
