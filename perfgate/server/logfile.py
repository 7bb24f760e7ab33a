"""The server's log as a growing file: positions, slices, and the last throughput that it printed."""

from __future__ import annotations

import re
import time
from pathlib import Path

_MAX_SLICE = 64 * 1024 * 1024
_FENCE = 256
"""Bytes before a mark that are remembered: enough for a whole line with its time."""
_RATE = re.compile(r"Decode batch.*?gen throughput \(token/s\): ([0-9.]+)")


class LogFile:
    """Reads without holding the file open, so that truncation and rotation are noticed and not followed blindly."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = self._stat()[0]
        self._fences: dict[int, bytes] = {}

    def mark(self) -> int:
        """The current end of the log, in bytes."""
        size = self._stat()[1]
        self._fences[size] = self._bytes(max(0, size - _FENCE), min(size, _FENCE))
        return size

    def lost(self, mark: int) -> bool:
        """Whether the log was cut or replaced since ``mark``: it is another file, it shrank, what stood before the mark
        stands there no longer (a cut file that has grown past it again), or a hole gapes behind it (a writer that goes on
        at its old offset leaves zero bytes, which no log line has)."""
        identity, size = self._stat()
        if identity != self._identity or size < mark:
            return True
        fence = self._fences.get(mark)
        if fence is not None and self._bytes(mark - len(fence), len(fence)) != fence:
            return True
        return b"\0" in self._bytes(mark, _MAX_SLICE)

    def since(self, mark: int) -> str:
        """Text from ``mark`` on, at most 64 MiB of it."""
        return self._read(mark, _MAX_SLICE)

    def whole(self) -> str:
        """The log, or where it is very long its last 64 MiB."""
        return self._read(max(0, self.mark() - _MAX_SLICE), _MAX_SLICE)

    def tail(self, size: int) -> str:
        return self._read(max(0, self.mark() - size), size)

    def head(self, size: int) -> str:
        """The log's first bytes, in which the start tells its sizes."""
        return self._read(0, size)

    def silent_for(self) -> float:
        """Seconds since the last write; 0 where there is no file."""
        try:
            return max(0.0, time.time() - self.path.stat().st_mtime)
        except FileNotFoundError:
            return 0.0

    def live_throughput(self) -> float | None:
        """Tokens per second on the last decode line, which SGLang prints every 40 steps."""
        rates = _RATE.findall(self.tail(16384))
        return float(rates[-1]) if rates else None

    def _read(self, start: int, size: int) -> str:
        return self._bytes(start, size).decode(errors="replace")

    def _bytes(self, start: int, size: int) -> bytes:
        try:
            with self.path.open("rb") as source:
                source.seek(start)
                return source.read(size)
        except FileNotFoundError:
            return b""

    def _stat(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_ino, found.st_size
