"""The part of GitHub's expressions that these workflows use: literals, contexts, == != && || !, some functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<op>&&|\|\||==|!=|[!(),])|(?P<name>[A-Za-z_][\w.-]*)|(?P<number>\d+))"
)
_HOLE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


class ExpressionError(ValueError):
    """Something that this evaluator does not know; better than a guess."""


def evaluate(source: str, contexts: Mapping[str, Any], status: str = "success") -> Any:
    """The value of one expression; ``status`` is ``success`` or ``failure``, what the job has come to so far."""
    parser = _Parser(source, contexts, status)
    value = parser.either()
    parser.end()
    return value


def fill(text: str, contexts: Mapping[str, Any]) -> str:
    """Text with each ``${{ }}`` replaced; an unset value is empty, as on a runner."""
    return _HOLE.sub(lambda hole: _text(evaluate(hole[1], contexts)), text)


def runs(condition: str | bool | None, contexts: Mapping[str, Any], status: str) -> bool:
    """Whether a step with this ``if:`` runs. Without a status function a condition means ``success() && …``."""
    if condition is None:
        return status == "success"
    source = str(condition).strip()
    hole = _HOLE.fullmatch(source)
    source = hole[1] if hole else source
    if not re.search(r"\b(always|success|failure|cancelled)\(\)", source) and status != "success":
        return False
    return bool(evaluate(source, contexts, status))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Parser:
    def __init__(self, source: str, contexts: Mapping[str, Any], status: str) -> None:
        self.source, self.contexts, self.at = source, contexts, 0
        self.functions: dict[str, Callable[..., Any]] = {
            "always": lambda: True,
            "success": lambda: status == "success",
            "failure": lambda: status == "failure",
            "cancelled": lambda: False,
            "startsWith": lambda text, start: _text(text).lower().startswith(_text(start).lower()),
            "contains": lambda text, part: _text(part).lower() in _text(text).lower(),
        }

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            other = self.both()
            value = value or other
        return value

    def both(self) -> Any:
        value = self.equal()
        while self.take("&&"):
            other = self.equal()
            value = value and other
        return value

    def equal(self) -> Any:
        value = self.single()
        for op in ("==", "!="):
            if self.take(op):
                same = _text(value).lower() == _text(self.single()).lower()
                return same if op == "==" else not same
        return value

    def single(self) -> Any:
        if self.take("!"):
            return not self.single()
        if self.take("("):
            value = self.either()
            self.need(")")
            return value
        match = _TOKEN.match(self.source, self.at)
        if not match or match["op"]:
            raise ExpressionError(f"cannot read {self.source!r} at {self.at}")
        self.at = match.end()
        if match["text"]:
            return match["text"][1:-1].replace("''", "'")
        if match["number"]:
            return int(match["number"])
        return self.name(match["name"])

    def name(self, name: str) -> Any:
        if self.take("("):
            if name not in self.functions:
                raise ExpressionError(f"function {name!r} is not known here")
            arguments = []
            while not self.take(")"):
                arguments.append(self.either())
                self.take(",")
            return self.functions[name](*arguments)
        if name in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[name]
        context, *rest = name.split(".")
        if context not in self.contexts:
            raise ExpressionError(f"context {context!r} of {name!r} is not known here")
        value = self.contexts[context]
        for part in rest:
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def take(self, op: str) -> bool:
        match = _TOKEN.match(self.source, self.at)
        if match and match["op"] == op:
            self.at = match.end()
            return True
        return False

    def need(self, op: str) -> None:
        if not self.take(op):
            raise ExpressionError(f"{op!r} expected in {self.source!r} at {self.at}")

    def end(self) -> None:
        if self.source[self.at :].strip():
            raise ExpressionError(f"cannot read the rest of {self.source!r} at {self.at}")
