"""Lines in, records out: one pass, a line at a time, so that a file of any size can be fed in pieces."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import tzinfo
from typing import Any

from perfgate.serverlog import batches, events, fast
from perfgate.serverlog.facts import FactCollector
from perfgate.serverlog.prefix import PREFIX, Clock
from perfgate.serverlog.records import (
    DecodeBatch,
    Event,
    EventKind,
    PrefillBatch,
    Ready,
    ServerLog,
    ServerLogError,
    access_fields,
)

MAX_LINE = 65536
"""Characters kept of one line. The longest real one (all server arguments) has some 20,000."""
MAX_TEXT = 2000
"""Characters kept of an event's text; enough for any message, too few for a dump to fill the memory."""
MANY = 500
"""Lines of one stretch that are neither batches nor accesses, from which on the stretch is searched as a whole."""
MAX_TRACEBACK = 400
"""Lines kept of one multi-line message; SGLang's longest tracebacks have about 120."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: records make no cycles, and scanning a million of them costs a third."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Parser:
    """Collects records from lines fed in order. Never raises on text; ``finish`` freezes what was found."""

    def __init__(self, tz: tzinfo | None = None) -> None:
        self._clock = Clock(tz)
        self._facts = FactCollector()
        self._prefill: list[PrefillBatch] = []
        self._decode: list[DecodeBatch] = []
        self._events: list[Event] = []
        self._ready: Ready | None = None
        self._line_no = 0
        self._drained = 0
        self._unparsed: list[str] = []
        self._unparsed_count = 0
        self._open: dict[str, Any] | None = None
        self._text, self._others, self._words = "", 0, events.ALL_WORDS

    def feed_text(self, text: str) -> None:
        """Whole lines of the file, the next ones in order. The last newline may be missing."""
        self._text, self._others = text, 0
        self.feed(text.removesuffix("\n").split("\n"))
        self._text, self._words = "", events.ALL_WORDS

    def feed(self, lines: Iterable[str]) -> None:
        """Lines of the file in order, without newlines. Progress bars and lines glued together are taken apart."""
        is_access, new, access = fast.ACCESS.match, tuple.__new__, EventKind.ACCESS
        line_no, last_date, time = self._line_no, "", None
        for line in lines:
            line_no += 1
            self._line_no = line_no
            # Most of a log are access lines: they are taken here, with nothing done that can be done when asked for.
            if line[20:28] == "] INFO: " and is_access(line) is not None:
                date = line[1:20]
                if date != last_date:
                    last_date, time = date, self._clock.seconds(date, None)
                self._events.append(new(Event, (line_no, time, None, access, line, None)))
                self._open = None
            elif not self._batch(line):
                self._slow(line)

    def _batch(self, line: str) -> bool:
        """Takes a batch line of everyday form; leaves others to the general way."""
        close = line.find("] ", 20, 100)
        first = line[close + 2 : close + 8]
        if first == "Decode":
            found = fast.DECODE.match(line)
            if found is None:
                return False
            self._decode.append(fast.decode(found, self._line_no, self._clock.seconds(found[1], found[2][1:]), line))
        elif first == "Prefil":
            found = fast.PREFILL.match(line)
            if found is None:
                return False
            self._prefill.append(fast.prefill(found, self._line_no, self._clock.seconds(found[1], found[2][1:]), line))
        else:
            return False
        self._open = None
        return True

    def _slow(self, line: str) -> None:
        if len(line) > MAX_LINE:
            line = line[:MAX_LINE]
        if "\r" in line:
            for segment in line.split("\r"):
                if segment:
                    self._segment(segment)
        else:
            self._segment(line)

    def _segment(self, line: str) -> None:
        # A rank that writes while another's line is unfinished leaves both on one line.
        found = PREFIX.match(line) if line.startswith("[") else None
        if found is None:
            found = PREFIX.search(line) if "[2" in line else None
            if found is None:
                self._bare(line)
                return
            self._bare(line[: found.start()])
        while found is not None:
            following = PREFIX.search(line, found.end()) if line.find("[2", found.end()) != -1 else None
            end = following.start() if following else len(line)
            time = self._clock.seconds(found[1], found[2])
            self._message(time, found[3][1:] or None, line[found.end() : end], line[found.start() : end])
            found = following

    def _message(self, time: float | None, rank: str | None, message: str, raw: str) -> None:
        self._open = None
        if message.startswith("INFO:"):
            if access_fields(message) is not None:
                self._events.append(Event(self._line_no, time, rank, EventKind.ACCESS, raw[:MAX_TEXT]))
                return
        elif message.startswith("Decode batch"):
            decoded = batches.decode(self._line_no, time, rank, message, raw)
            if decoded is not None:
                self._decode.append(decoded)
                return
        elif message.startswith("Prefill batch"):
            filled = batches.prefill(self._line_no, time, rank, message, raw)
            if filled is not None:
                self._prefill.append(filled)
                return
        self._other(time, rank, message, raw)

    def _bare(self, line: str) -> None:
        """A line without a prefix: part of a traceback, a progress bar, or native code's own words."""
        if self._open is not None and line.strip():
            trace: list[str] = self._open["traceback"]
            if len(trace) < MAX_TRACEBACK:
                trace.append(line[:MAX_TEXT])
            if events.is_error_line(line):
                self._open["error"] = line[:MAX_TEXT]
        size = events.captured_size(line)
        if size is not None:
            self._facts.see_progress(size)
            return
        if line.startswith("INFO:") and access_fields(line) is not None:
            self._events.append(Event(self._line_no, None, None, EventKind.ACCESS, line[:MAX_TEXT]))
            return
        self._other(None, None, line, line)

    def _other(self, time: float | None, rank: str | None, message: str, raw: str) -> None:
        if "Prefill batch" in message or "Decode batch" in message:
            self._unparsed_count += 1
            if len(self._unparsed) < 3:
                self._unparsed.append(raw[:200])
        self._others += 1
        if self._others == MANY and self._text:  # worth knowing once which words there are at all to look for
            self._words = events.words_in(self._text)
        kind = events.classify(message, self._words) if self._words else None
        if kind is None:
            return
        if kind is EventKind.TRACEBACK and self._open is not None:
            return  # the header inside "hit an exception:" or a chained traceback; one event holds it all
        fields: dict[str, Any] = self._facts.see(kind, message)
        if kind in events.MULTI_LINE:
            fields = {**fields, "traceback": [], "error": None}
            self._open = fields
        if kind is EventKind.READY and self._ready is None:
            self._ready = Ready(self._line_no, time, raw[:MAX_TEXT])
        if kind is EventKind.SERVER_ARGS:
            raw = raw[: raw.find("server_args=")] + "server_args=ServerArgs(...)"  # it may hold keys and paths
        self._events.append(Event(self._line_no, time, rank, kind, raw[:MAX_TEXT], fields))

    def drain(self) -> list[PrefillBatch | DecodeBatch | Event]:
        """What was found since the last drain, in file order; it is forgotten here. For files too large to keep."""
        records: list[PrefillBatch | DecodeBatch | Event] = [*self._prefill, *self._decode, *self._events]
        records.sort(key=lambda record: record.line_no)
        self._drained += len(records)
        self._prefill, self._decode, self._events = [], [], []
        return records

    @property
    def _batches(self) -> bool:
        return bool(self._drained or self._prefill or self._decode)

    @property
    def found(self) -> int:
        """How many records were found so far."""
        return self._drained + len(self._prefill) + len(self._decode) + len(self._events)

    def finish(self, end_offset: int = 0, allow_empty: bool = False) -> ServerLog:
        """The records as one log.

        Raises ServerLogError when lines name a batch and none could be read (a format this parser does not know), or,
        unless ``allow_empty``, when nothing at all was found.
        """
        if self._unparsed_count and not self._batches:
            raise ServerLogError(
                f"{self._unparsed_count} lines name a prefill or decode batch and none could be read: a format "
                f"unknown to perfgate.serverlog; the first: {self._unparsed[0]!r}"
            )
        if not self.found and not allow_empty:
            raise ServerLogError(
                f"nothing in these {self._line_no} lines is an SGLang log line: no batch, start-up, access or failure "
                "line; check that the right file was read and that SGLANG_LOGGING_CONFIG_PATH is not set"
            )
        return ServerLog(
            prefill=tuple(self._prefill),
            decode=tuple(self._decode),
            events=tuple(self._events),
            ready=self._ready,
            facts=self._facts.facts(),
            unparsed=self._unparsed_count,
            lines=self._line_no,
            end_offset=end_offset,
        )


def parse(text: str, tz: tzinfo | None = None, allow_empty: bool = False) -> ServerLog:
    """Parse a server log of SGLang 0.4.1 to 0.5.23.

    ``tz`` is the zone of the server's clock (None: this machine's). A log that ends before the first batch is fine as
    long as start-up or failure lines are in it. Raises ServerLogError for an empty log, for one in which nothing is
    SGLang's, and for one whose batch lines can't be read; with ``allow_empty`` (part of a log) only for the last.
    """
    parser = Parser(tz)
    size = len(text.encode("utf-8", "surrogatepass"))
    with collector_paused():
        for piece in _pieces(text):
            parser.feed_text(piece)
    return parser.finish(size, allow_empty)


def _pieces(text: str, size: int = 1 << 20) -> Iterator[str]:
    """The text in stretches of whole lines."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + size)
        end = len(text) if end < 0 else end + 1
        yield text[start:end]
        start = end
