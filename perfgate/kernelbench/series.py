"""Which rows of a run belong on one plot: time against batch, length or maximum, everything else the same (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields

from perfgate.kernelbench.bars import OURS
from perfgate.kernelbench.roofline import least_us
from perfgate.kernelbench.rows import Row, Run
from perfgate.kernelbench.shapes import IndexerShape, Shape, TopKShape, kernel_of

AXES = {"batch": "batch", "length": "length", "maximum": "maximum length"}


@dataclass(frozen=True)
class Line:
    """One implementation: (x, microseconds), ascending in x."""

    label: str
    points: tuple[tuple[float, float], ...]
    ours: bool = False


@dataclass(frozen=True)
class Plot:
    """One drawing: its title, what x is, a line an implementation, and the least time at this card's rates."""

    title: str
    axis: str
    lines: tuple[Line, ...]
    roof: tuple[tuple[float, float], ...]


def plots(run: Run) -> list[Plot]:
    """Every family of shapes of a run in which one thing takes two values or more, ours among what was timed."""
    return [plot for axis in AXES for plot in _along(run, axis)]


def _along(run: Run, axis: str) -> Iterator[Plot]:
    families: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in run.rows:
        if hasattr(row.shape, axis):
            families[(kernel_of(row.shape), *_kept(row.shape, axis).items())].append(row)
    for rows in families.values():
        shapes = {_at(row.shape, axis): row.shape for row in rows}
        if len(shapes) < 2 or not any(row.implementation == OURS for row in rows):
            continue
        lines = []
        for name in dict.fromkeys(row.implementation for row in rows):
            own = sorted((_at(r.shape, axis), r.median_us, r.label) for r in rows if r.implementation == name)
            lines.append(Line(own[0][2], tuple((x, us) for x, us, _ in own), name == OURS))
        roof = tuple((x, least_us(shape.work, run.rates)) for x, shape in sorted(shapes.items()))
        yield Plot(_title(rows[0].shape, axis), AXES[axis], tuple(lines), roof)


def _at(shape: Shape, axis: str) -> float:
    return float(getattr(shape, axis))


def _kept(shape: Shape, axis: str) -> dict[str, object]:
    """What rows of one family share. A maximum that is the length itself goes along with the length."""
    kept = {f.name: getattr(shape, f.name) for f in fields(shape) if f.name != axis}
    if isinstance(shape, IndexerShape | TopKShape) and axis == "length" and shape.maximum == shape.length:
        kept["maximum"] = "length"
    return kept


def _title(shape: Shape, axis: str) -> str:
    kept = [f"{name} {value}" for name, value in _kept(shape, axis).items()]
    return ", ".join([kernel_of(shape), *kept])
