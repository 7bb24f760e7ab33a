"""Reads SGLang's failed health checks: how long the server had not answered, and whether it came back."""

from __future__ import annotations

import re

_TIMES = re.compile(
    r"tic start time: (\d\d):(\d\d):(\d\d)\. last_heartbeat time: (\d\d):(\d\d):(\d\d)",
)

LONG_GAP_S = 60
"""Three times SGLang's own 20 s health timeout: one slow prefill explains a shorter silence, hardly a longer one."""


def heartbeat_gap_s(text: str) -> int | None:
    """Seconds between the last answer and the failed check; the line gives times of day, so at most a day."""
    match = _TIMES.search(text)
    if not match:
        return None
    hours = [int(part) for part in match.groups()]
    tic = hours[0] * 3600 + hours[1] * 60 + hours[2]
    beat = hours[3] * 3600 + hours[4] * 60 + hours[5]
    return (tic - beat) % 86400
