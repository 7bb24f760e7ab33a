"""How often each patch was called, written to a file, since the scheduler is another process than the gate.

Under CUDA graphs Python runs only while a graph is captured, so calls are kept apart: while capturing, by number of
query rows (one call a layer and captured size is expected), and eager, by second (so that a reader can ask for those
inside a measured window). Those of a batch that is known to decode nothing are a number beside both. Replays are proved by
a trace instead (perfgate.trace_proof).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
FLUSH_SECONDS = 0.3
KEPT_SECONDS = 4 * 3600
"""Eager calls older than this are folded into ``eager_before``, so that the file of a long-lived server stays small."""


class Counts:
    """Calls of each patch in this process. ``path`` is the file's name without the process id that is appended to it.

    Counting costs a dictionary update under the interpreter's lock; a daemon thread writes the file at most every
    FLUSH_SECONDS, and only after something was counted.
    """

    def __init__(
        self,
        path: str | None,
        header: Mapping[str, Any],
        capturing: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = None if path is None else Path(f"{path}.{os.getpid()}")
        self._header = dict(header)
        self._capturing = capturing
        self._clock = clock
        self._captured: dict[str, Counter[int]] = defaultdict(Counter)
        self._eager: dict[str, Counter[int]] = defaultdict(Counter)
        self._before: Counter[str] = Counter()
        self._prefill: Counter[str] = Counter()
        self._nothing_decoded = False
        self._dirty = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, patch: str, rows: int) -> None:
        """Count one call of ``patch`` with ``rows`` query rows (decode: the batch size)."""
        with self._lock:
            if self._nothing_decoded:
                self._prefill[patch] += 1
            elif self._capturing():
                self._captured[patch][rows] += 1
            else:
                self._eager[patch][int(self._clock())] += 1
        if self.path is not None and not self._dirty.is_set():
            self._dirty.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_when_dirty, name="dsv4-counts", daemon=True)
                self._thread.start()

    @contextlib.contextmanager
    def decoding_nothing(self) -> Iterator[None]:
        """While SGLang's one forward thread works on a batch that decodes nothing (forward_mode)."""
        self._nothing_decoded = True
        try:
            yield
        finally:
            self._nothing_decoded = False

    def document(self) -> dict[str, Any]:
        """What is written to the file."""
        with self._lock:
            horizon = int(self._clock()) - KEPT_SECONDS
            for patch, seconds in self._eager.items():
                for second in [s for s in seconds if s < horizon]:
                    self._before[patch] += seconds.pop(second)
            names = sorted({*self._captured, *self._eager, *self._prefill})
            calls = {
                name: {
                    "capturing": {str(rows): n for rows, n in sorted(self._captured[name].items())},
                    "eager_by_second": {str(second): n for second, n in sorted(self._eager[name].items())},
                    "eager_before": self._before[name],
                    "prefill": self._prefill[name],
                }
                for name in names
            }
        return {"schema": SCHEMA, "pid": os.getpid(), **self._header, "calls": calls}

    def write(self) -> None:
        """Replace the file at once (a reader never sees half of it). Raises OSError."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_text(json.dumps(self.document()), encoding="utf-8")
        os.replace(temporary, self.path)

    def _write_when_dirty(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(FLUSH_SECONDS)
            self._dirty.clear()
            # A full or vanished disk must not take the server down; the gate then finds no counts and says so.
            with contextlib.suppress(OSError):
                self.write()
