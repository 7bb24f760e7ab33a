"""Ctrl-C and SIGTERM held back where an interruption would lose a process that nobody could end any more (edge)."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends a run: a terminal's Ctrl-C, and a CI runner's SIGINT that it repeats as SIGTERM some seconds later."""


@contextlib.contextmanager
def held_back(again: bool = True) -> Iterator[list[int]]:
    """Until the block ends, both signals are only noted in the list that is yielded.

    ``again``: then give the first of them to whoever handled it before. Outside the main thread nothing is held back, since
    only that thread is ever interrupted.

    By handlers and not by a mask, which a process started in the block would inherit.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    # None: a handler that no Python code set, and none could set back.
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, lambda signum, frame: noted.append(signum))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if again and noted:
            signal.raise_signal(noted[0])
