"""Numbers and texts on the page, each tied to the place in the result JSON that it came from.

A value is shown with its RFC 6901 JSON pointer in ``data-path``, so that a program can hold the page to the JSON. The
template asks for a place and never for a number: the two cannot come apart.
"""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from perfgate.report import words


class Source:
    """The result as JSON data, addressed by pointers."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def get(self, path: str) -> Any:
        """What lies at a pointer (``/points/0/why``). Raises KeyError where there is nothing."""
        found = self.data
        for part in path.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise KeyError(f"the result has nothing at {path}") from None
        return found

    def text(self, path: str, kind: str = "") -> str:
        """The value as people read it; ``kind`` as in ``words.number``, and ``time`` for seconds since the epoch."""
        return shown(self.get(path), kind)

    def show(self, path: str, kind: str = "") -> Markup:
        """The value in a ``span`` that names its pointer, kind and exact JSON."""
        return Markup("<span{}>{}</span>").format(self.attributes(path, kind), self.text(path, kind))

    def fold(self, how: str, path: str) -> Markup:
        """``sum`` of the numbers, or ``count`` of the truths, at ``LIST/*/FIELD``."""
        stem, _, field = path.partition("/*/")
        values = [row[field] for row in self.get(stem)]
        total = sum(bool(v) for v in values) if how == "count" else sum(v or 0 for v in values)
        return Markup('<span data-fold="{}" data-path="{}">{}</span>').format(how, path, words.number(total, "count"))

    def attributes(self, path: str, kind: str = "") -> Markup:
        """The attributes alone, for a mark in a plot."""
        exact = json.dumps(self.get(path), ensure_ascii=False)
        return Markup(' data-path="{}" data-kind="{}" data-value="{}"').format(path, kind, exact)


def shown(value: Any, kind: str = "") -> str:
    """Any JSON value as text."""
    if value is None:
        return words.ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return words.utc(value) if kind == "time" else words.number(value, kind)
    return words.plain(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def join(path: str, *parts: str | int) -> str:
    """A pointer further down, with ``~`` and ``/`` in keys written as RFC 6901 asks."""
    return "".join([path, *(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)])
