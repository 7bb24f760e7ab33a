"""Small parts of plots: scales, ticks, marks told apart by their shape. Pure: numbers in, markup out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

NONE = Markup("")


@dataclass(frozen=True)
class Scale:
    """Maps ``low..high`` in data onto ``start..end`` in pixels; logarithmic in base 2 where asked."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        share = (self._at(value) - self._at(self.low)) / (self._at(self.high) - self._at(self.low))
        return round(self.start + share * (self.end - self.start), 2)

    def holds(self, value: float) -> bool:
        """True where the value lies on the axis, and so may be drawn."""
        return self.low <= value <= self.high

    def _at(self, value: float) -> float:
        return math.log2(value) if self.log else value


def spanning(values: Iterable[float], start: float, end: float, margin: float = 0.08, zero: bool = False) -> Scale:
    """A linear scale that holds all values with some air around them, from 0 where asked."""
    known = [v for v in values if math.isfinite(v)] or [0.0]
    low, high = (min(0.0, *known) if zero else min(known)), max(known)
    air = (high - low) * margin or abs(high) * margin or 1.0
    return Scale(low if zero and low == 0 else low - air, high + air, start, end)


def ticks(scale: Scale, count: int = 5) -> list[float]:
    """Round numbers inside a linear scale: steps of 1, 2 or 5 times a power of ten, about ``count`` of them."""
    rough = (scale.high - scale.low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * 0.999)
    first = math.ceil(scale.low / step - 1e-9)
    last = math.floor(scale.high / step + 1e-9)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def tick_text(value: float) -> str:
    """A tick's label: as short as the number allows."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> Markup:
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(x1, y1, x2, y2, css)


def polyline(points: Sequence[tuple[float, float]], css: str) -> Markup:
    return Markup('<polyline points="{}" class="{}"/>').format(" ".join(f"{x},{y}" for x, y in points), css)


def text(x: float, y: float, words: str, css: str = "label", anchor: str = "start") -> Markup:
    return Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(x, y, css, anchor, words)


def rect(x: float, y: float, width: float, height: float, css: str, attributes: Markup = NONE) -> Markup:
    return Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"{}/>').format(
        x, y, max(round(width, 2), 0), height, css, attributes
    )


def circle(x: float, y: float, css: str, attributes: Markup = NONE) -> Markup:
    """This run's value."""
    return Markup('<circle cx="{}" cy="{}" r="4.5" class="{}"{}/>').format(x, y, css, attributes)


def diamond(x: float, y: float, css: str, attributes: Markup = NONE) -> Markup:
    """The baseline's value."""
    shape = f"{x},{y - 6} {x + 6},{y} {x},{y + 6} {x - 6},{y}"
    return Markup('<polygon points="{}" class="{}"{}/>').format(shape, css, attributes)


def triangle(x: float, y: float, css: str, attributes: Markup = NONE) -> Markup:
    """A target, or a change point: what is not a measurement of this run."""
    shape = f"{x},{y - 6} {x + 6},{y + 5} {x - 6},{y + 5}"
    return Markup('<polygon points="{}" class="{}"{}/>').format(shape, css, attributes)


def square(x: float, y: float, css: str, attributes: Markup = NONE) -> Markup:
    """A third kind of measurement, where circle and diamond are taken."""
    return Markup('<rect x="{}" y="{}" width="9" height="9" class="{}"{}/>').format(x - 4.5, y - 4.5, css, attributes)


def bar(x: float, y: float, css: str, attributes: Markup = NONE) -> Markup:
    """A floor: an upright bar with the side that passes left open."""
    return Markup('<rect x="{}" y="{}" width="4" height="18" class="{}"{}/>').format(x - 2, y - 9, css, attributes)


def whisker(x1: float, x2: float, y: float, css: str, upright: bool = False) -> Markup:
    """An interval with its caps; ``upright`` swaps the axes."""
    parts = [(x1, y, x2, y), (x1, y - 4, x1, y + 4), (x2, y - 4, x2, y + 4)]
    if upright:
        parts = [(b, a, d, c) for a, b, c, d in parts]
    return joined(line(*part, css) for part in parts)


def figure(width: int, height: int, title: str, body: Iterable[Markup]) -> Markup:
    """A whole drawing; ``title`` is what a screen reader says."""
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, title)
    return Markup("{}{}</svg>").format(head, joined(body))


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)
