"""How long to keep a silent server, so that its own watchdog can still say why."""

from __future__ import annotations

import re

_ARGUMENT = re.compile(r"\bwatchdog_timeout=(\d{1,7}(?:\.\d+)?)")
DEFAULT_WATCHDOG_S = 300.0
"""SGLang's ``--watchdog-timeout`` when nothing sets it."""
GRACE_S = 30.0
"""The watchdog looks every half timeout at worst, dumps stacks, then waits 5 s before it signals."""


def keep_server_for_s(log: str, since_last_token_s: float = 0.0) -> float:
    """Seconds to go on waiting for the server's watchdog line after the client gave up; 0 once the line is there.

    The scheduler's watchdog polls every ``watchdog_timeout / 2``, so it fires between 1 and 1.5 timeouts after the last
    step (``utils/watchdog.py``).
    """
    if "atchdog timeout (" in log:
        return 0.0
    found = _ARGUMENT.search(log)
    timeout = float(found.group(1)) if found else DEFAULT_WATCHDOG_S
    return max(0.0, 1.5 * timeout + GRACE_S - since_last_token_s)
