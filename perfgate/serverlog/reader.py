"""A log file on disk, whole, in part, or as a stream that keeps nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from typing import BinaryIO, NamedTuple

from perfgate.serverlog.parser import MAX_LINE, Parser, collector_paused
from perfgate.serverlog.records import DecodeBatch, Event, PrefillBatch, ServerFacts, ServerLog, ServerLogError

_CHUNK = 1 << 20


def read_file(
    path: Path | str,
    start_offset: int = 0,
    end_offset: int | None = None,
    facts: ServerFacts | None = None,
    tz: tzinfo | None = None,
) -> ServerLog:
    """The lines that begin in ``[start_offset, end_offset)`` (bytes; None: the end of the file).

    A line still being written (no newline yet) is left for the next call, which passes this log's ``end_offset``; with
    an ``end_offset`` given it is read. A part (``start_offset`` above 0) may be empty and takes over ``facts`` from the
    log of the start. Raises ServerLogError when the file can't be read, is shorter than ``start_offset`` (truncated or
    rotated), or as ``parse`` does.
    """
    parser = Parser(tz)
    position = start_offset
    with collector_paused():
        for block, position in _blocks(Path(path), start_offset, end_offset):  # noqa: B007
            parser.feed_text(block)
    log = parser.finish(position, allow_empty=start_offset > 0)
    return log if facts is None else replace(log, facts=facts)


def stream_file(
    path: Path | str, start_offset: int = 0, end_offset: int | None = None, tz: tzinfo | None = None
) -> Iterator[PrefillBatch | DecodeBatch | Event]:
    """As ``read_file``, one record at a time in file order; memory does not grow with the file (about 10 MB)."""
    parser = Parser(tz)
    for block, _ in _blocks(Path(path), start_offset, end_offset):
        parser.feed_text(block)
        yield from parser.drain()
    parser.finish(allow_empty=start_offset > 0)


def file_size(path: Path | str) -> int:
    """Bytes in the file now: the offset to note before and after a sample."""
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise ServerLogError(f"can't read the server log {path}: {error.strerror}") from error


def _blocks(path: Path, start: int, end: int | None) -> Iterator[tuple[str, int]]:
    """Blocks of whole lines, and the offset after each block."""
    size = file_size(path)
    if start > size:
        raise ServerLogError(f"{path} has {size} bytes but {start} were read before: it was truncated or rotated")
    try:
        file = path.open("rb")
    except OSError as error:
        raise ServerLogError(f"can't read the server log {path}: {error.strerror}") from error
    with file:
        position = start
        if start:
            file.seek(start - 1)
            if file.read(1) != b"\n":
                position += _rest_of_line(file).size  # the line began before: it belongs to the part before
        last = size if end is None else min(end, size)
        while position < last:
            block = file.read(min(_CHUNK, last - position))
            used = len(block)
            if not block.endswith(b"\n"):
                rest = _rest_of_line(file)
                if rest.whole or end is not None:
                    used += rest.size
                    block += rest.kept
                else:
                    used = block.rfind(b"\n") + 1  # the last line is still being written
                    block = block[:used]
            if not used:
                return
            position += used
            yield block.decode("utf-8", "replace"), position


class _Rest(NamedTuple):
    kept: bytes
    size: int
    whole: bool


def _rest_of_line(file: BinaryIO) -> _Rest:
    """From here to the newline: no more of it than a line may have, its size in the file, and whether it has ended."""
    kept, size = b"", 0
    while piece := file.readline(_CHUNK):
        size += len(piece)
        kept += piece[: MAX_LINE - len(kept)] if len(kept) < MAX_LINE else b""
        if piece.endswith(b"\n"):
            return _Rest(kept.removesuffix(b"\n") + b"\n", size, True)
    return _Rest(kept, size, False)
