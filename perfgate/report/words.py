"""How outcomes and numbers are written, in every form of the report alike."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from perfgate.result import MetricResult, Outcome, PointResult, RunResult

ABSENT = "\N{EN DASH}"
"""Stands where a number was not measured. Never 0, which would be a measurement."""

GLYPHS: Mapping[Outcome, str] = {
    Outcome.PASS: "✓",
    Outcome.IMPROVED: "▲",
    Outcome.REGRESSION: "▼",
    Outcome.INCONCLUSIVE: "?",
    Outcome.INVALID: "!",
    Outcome.MISSING: "✗",
    Outcome.NO_BASELINE: "○",
}
"""One shape an outcome, so that nothing is told by colour alone."""

JUDGED_BY: Mapping[str, str] = {
    "baseline": "judged against the stored baseline",
    "smoke": "judged by the recipe's smoke floor alone: no baseline of this machine",
    "ab": "judged by A/B: samples of two servers in pairs",
    "recording": "recording a baseline",
    "nothing": "judged by nothing",
}

_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Text without terminal escapes, control characters and direction overrides; tabs and newlines stay. What was no
    character (a lone surrogate, from a log cut inside one) becomes the replacement character.

    Log lines come from other programs: an escape in one could otherwise repaint a terminal and hide a verdict.
    """
    return _CONTROL.sub("", _HALF.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n")))


def one_line(text: str, limit: int | None = None) -> str:
    """The same on one line, cut with an ellipsis where longer than ``limit`` characters."""
    flat = " ".join(plain(text).split())
    return flat if limit is None or len(flat) <= limit else flat[: limit - 1] + "…"


def number(value: float | int | None, kind: str = "") -> str:
    """A number as people read it.

    ``kind`` is a unit: ``tok/s`` and ``ms`` keep the digits that matter, ``%`` takes a share (0.5 is "50.0 %"),
    ``+%`` one with its sign, ``count`` a whole number, anything else six significant digits. None is a dash.
    """
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{'-' if value < 0 else ''}infinite"
    if kind == "count" or (isinstance(value, int) and kind == ""):
        return f"{int(value):,}"
    if kind == "tok/s":
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3f}"
    if kind == "ms":
        return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.3f}"
    if kind == "s":
        return f"{value:,.1f}"
    if kind == "%":
        return f"{value * 100:.1f} %"
    if kind == "+%":
        return f"{value * 100:+.1f} %"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if 1e5 <= abs(value) < 1e15 else f"{value:,.6g}"


def interval(metric: MetricResult) -> str:
    """A metric's value with its interval: ``1,234.5 [1,230.0, 1,239.1]``."""
    text = number(metric.value, metric.unit)
    if metric.low is None or metric.high is None:
        return text
    return f"{text} [{number(metric.low, metric.unit)}, {number(metric.high, metric.unit)}]"


def item(value: object) -> str:
    """One entry of a list: text as it is, a table as ``key value, key value``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item(entry)}" for key, entry in value.items())
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else one_line(str(value))


def utc(seconds: float) -> str:
    """Seconds since the epoch as a date and time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def metric(point: PointResult, name: str) -> MetricResult | None:
    """The metric of that name, where the point has it."""
    return next((m for m in point.metrics if m.name == name), None)


def asked(point: PointResult) -> int:
    """Requests asked over all the point's samples, those that did not count included."""
    return sum(s.asked for s in point.samples)


def completed(point: PointResult) -> int:
    """Requests that came back whole, over the same samples."""
    return sum(s.completed or 0 for s in point.samples)


def counted(point: PointResult) -> int:
    """Samples that counted."""
    return sum(s.counted for s in point.samples)


def headline(result: RunResult) -> str:
    """The first line of every form of the report."""
    return one_line(f"{GLYPHS[result.outcome]} {result.outcome}  {result.recipe}: {result.why}")


def open_points(result: RunResult) -> list[PointResult]:
    """The points that need an explanation: all but those that passed as they should."""
    return [p for p in result.points if p.outcome is not Outcome.PASS]
