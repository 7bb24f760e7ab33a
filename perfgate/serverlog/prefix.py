"""The prefix of SGLang's log lines: ``[2026-11-29 16:55:54.123 DP0 TP1 EP1] ``, ranks only where there are several.

Format: ``srt/utils/common.py`` (configure_logger) and ``srt/managers/scheduler.py`` (the rank part), 0.4.1 to 0.5.23.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

PREFIX = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?((?: [A-Z_]{1,12}\d{1,5}){0,8})\] ?")


class Clock:
    """Turns a prefix's time into seconds since the epoch; the server writes local time, without a zone.

    ``tz`` is the server's zone, None the zone of this machine. Lines share seconds, so the last one is remembered.
    """

    def __init__(self, tz: tzinfo | None = None) -> None:
        self._tz = tz
        self._text = ""
        self._seconds: float | None = None

    def seconds(self, text: str, fraction: str | None) -> float | None:
        """Epoch seconds of ``YYYY-MM-DD HH:MM:SS`` and its decimals; None when it is no date (month 13)."""
        if text != self._text:
            self._text = text
            try:
                self._seconds = datetime.fromisoformat(text).replace(tzinfo=self._tz).timestamp()
            except (ValueError, OverflowError, OSError):
                self._seconds = None
        if self._seconds is None or not fraction:
            return self._seconds
        return self._seconds + float(f"0.{fraction}")
