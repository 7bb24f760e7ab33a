"""Which backends a server chose by itself, in its own words: the lines of its start-up log that name one (pure)."""

from __future__ import annotations

import re

from perfgate.redact import redact_text
from perfgate.serverlog.prefix import PREFIX

_CHOICE = re.compile(r"\b(?:us(?:e|ing)|set(?:ting)?|select(?:ed|ing)|disabl(?:e|ed|ing)|fall(?:ing)? back)\b", re.I)
_BACKEND = re.compile(r"\b(?:\w+[. ])*backend\b", re.I)
_READY = "The server is fired up and ready to roll"
_ECHO = ("server_args=", "INFO: ")
_MOST, _LONGEST = 32, 200


def chosen(log: str) -> list[str]:
    """Sentences such as "Use fa3 backend by default.", sorted, each once whatever the number of ranks.

    ``/server_info`` repeats the arguments that were given, and an ``auto`` stays ``auto`` there in some releases: the
    choice that a changed library makes (fa2 to fa3) then shows in the log alone. Lines after the ready line are left out.
    """
    found: set[str] = set()
    for line in log.partition(_READY)[0].splitlines():
        prefix = PREFIX.match(line)
        if prefix is None:
            continue
        words = line[prefix.end() :].strip()
        if not words.startswith(_ECHO) and _CHOICE.search(words) and _BACKEND.search(words):
            found.add(redact_text(words[:_LONGEST]))
    return sorted(found)[:_MOST]
