"""Stands in for what a test may not do to the machine: a clock that is set, and a disk that takes its time.

Python reads this at its start where the folder is on PYTHONPATH. STAND_IN_CLOCK names a file with the seconds by which
``time.time`` is off in this process (the steady clocks stay right, as they do when a machine's clock is set).
STAND_IN_DISK names a file: while it exists, ``os.fsync`` of files whose path holds the text in it writes its process's
id into the same name with ``.waiting`` and waits until the file is gone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_time, _time_ns, _fsync = time.time, time.time_ns, os.fsync


def _offset() -> float:
    try:
        with open(os.environ["STAND_IN_CLOCK"], encoding="ascii") as source:
            return float(source.read() or 0)
    except (OSError, ValueError):
        return 0.0


def _slow_fsync(handle: int) -> None:
    switch = Path(os.environ["STAND_IN_DISK"])
    path = os.readlink(f"/proc/self/fd/{handle}")
    while switch.exists() and switch.read_text() in path:
        switch.with_suffix(".waiting").write_text(str(os.getpid()))
        time.sleep(0.05)
    _fsync(handle)


if "STAND_IN_CLOCK" in os.environ:
    time.time = lambda: _time() + _offset()
    time.time_ns = lambda: _time_ns() + int(_offset() * 1e9)
if "STAND_IN_DISK" in os.environ:
    os.fsync = _slow_fsync
