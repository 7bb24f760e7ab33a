"""The plots of the page, as SVG. Each mark carries the pointer of the number it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from perfgate.report import extras, svg, words
from perfgate.report.pointer import Source, join

_WIDTH = 640
_LEFT, _RIGHT = 70, 620
_ROW_WIDTH, _ROW_END = 520, 430
_HATCH = Markup(
    '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" class="hatchback"/><line x1="0" y1="0" x2="0" y2="6" class="hatchline"/>'
    "</pattern></defs>"
)


def metric(source: Source, name: str) -> Markup:
    """One row a point: the value and its interval as a share of the baseline (of the value itself without one).

    Points differ by orders of magnitude, so absolute axes would hide a drop of a few percent at low concurrency. A
    target or a floor that lies far off is drawn at the edge, with its number.
    """
    rows = []
    for i, point in enumerate(source.get("/points")):
        for j, entry in enumerate(point["metrics"]):
            if entry["name"] == name and entry["value"] is not None:
                rows.append((join("", "points", i), entry, join("", "points", i, "metrics", j)))
    if not rows:
        return Markup("")
    near = [share for _, entry, _ in rows for share in _near(entry)]
    scale = svg.spanning(near, _LEFT, _ROW_END)
    top, step = 14, 44
    height = top + step * len(rows) + 34
    body = [_x_axis(scale, height - 30, top, lambda v: f"{v * 100:g} %")]
    for k, (point, entry, path) in enumerate(rows):
        body += _metric_row(source, scale, top + step * k + step / 2, point, entry, path)
    return svg.figure(_ROW_WIDTH, height, f"{name} of each point with its interval, floor, baseline and target", body)


def _reference(entry: Mapping[str, Any]) -> float:
    return float(entry["baseline"] or entry["value"] or 1.0)


def _near(entry: Mapping[str, Any]) -> list[float]:
    reference = _reference(entry)
    kept = [entry["value"], entry["baseline"], entry["low"], entry["high"]]
    kept += [v for v in (entry["floor"], entry["target"]) if v is not None and 0.9 <= v / reference <= 1.1]
    return [1.0, *(v / reference for v in kept if v is not None)]


def _metric_row(
    source: Source, scale: svg.Scale, y: float, point: str, entry: Mapping[str, Any], path: str
) -> list[Markup]:
    reference, unit = _reference(entry), entry["unit"]
    css = "bad" if entry["outcome"] not in ("PASS", "IMPROVED") else "run"
    parts = [svg.line(_LEFT, y, _ROW_END, y, "guide"), _point_label(source, _LEFT - 12, y + 4, point)]

    def at(value: float) -> float:
        return min(max(scale(value / reference), _LEFT), _ROW_END)

    for key, mark in (("floor", svg.bar), ("target", svg.triangle), ("baseline", svg.diamond)):
        if entry[key] is not None:
            off = not scale.holds(entry[key] / reference)
            css_class, lane = (f"{key} off", y - 9) if off else (key, y if key == "floor" else y - 9)
            parts.append(mark(at(entry[key]), lane, css_class, source.attributes(join(path, key), unit)))
            if off:
                left = entry[key] / reference < scale.low
                parts.append(_at_edge(source, at(entry[key]), y, join(path, key), unit, left))
    if entry["low"] is not None and entry["high"] is not None:
        parts.append(svg.whisker(at(entry["low"]), at(entry["high"]), y + 4, css))
    value = join(path, "value")
    parts.append(svg.circle(at(entry["value"]), y + 4, css, source.attributes(value, unit)))
    parts.append(_value_text(source, _ROW_END + 12, y + 8, value, unit))
    return parts


def _point_label(source: Source, x: float, y: float, point: str) -> Markup:
    path = join(point, "concurrency")
    return Markup('<text x="{}" y="{}" text-anchor="end">C=<tspan{}>{}</tspan></text>').format(
        x, y, source.attributes(path, "count"), source.text(path, "count")
    )


def _at_edge(source: Source, x: float, y: float, path: str, unit: str, left: bool) -> Markup:
    return Markup('<text x="{}" y="{}" class="small" text-anchor="{}"{}>{}</text>').format(
        x + (-4 if left else 4),
        y + 19,
        "start" if left else "end",
        source.attributes(path, unit),
        source.text(path, unit),
    )


def scaling(source: Source) -> Markup:
    """Step time against concurrency with the fit of this run and the baseline's. Raises extras.ShapeError."""
    path = "/extra/scaling"
    data = source.get(path)
    dots, fit = extras.dots(data, path), extras.fit(data, path)
    base = data.get("baseline")
    base_fit = extras.fit(base, f"{path}/baseline") if base else None
    base_dots = extras.dots(base, f"{path}/baseline") if base else []
    highest = max([d.n for d in [*dots, *base_dots]], default=64.0)
    x = svg.Scale(1, max(highest, 2) * 1.08, _LEFT, _ROW_WIDTH - 15, log=True)
    grid = [highest ** (i / 60) for i in range(61)]
    curves = [(n, f(n)) for f in (fit, base_fit) if f for n in grid]
    spread = [d.step_ms + s * 2 * (d.sd_ms or 0) for d in dots for s in (-1, 1)]
    y = svg.spanning([v for _, v in curves] + spread + [d.step_ms for d in base_dots], 270, 14, zero=True)
    body = [_y_axis(y, " ms", end=_ROW_WIDTH - 15)]
    for n in _powers(highest):
        body += [svg.line(x(n), 14, x(n), 270, "grid"), svg.text(x(n), 288, svg.tick_text(n), "tick", "middle")]
    body.append(svg.text((_LEFT + _ROW_WIDTH) / 2, 306, "concurrency", "axis", "middle"))
    if base_fit:
        body.append(svg.polyline([(x(n), y(base_fit(n))) for n in grid], "curve base"))
    if fit:
        body.append(svg.polyline([(x(n), y(fit(n))) for n in grid], "curve run"))
    body += [svg.diamond(x(d.n), y(d.step_ms), "baseline", source.attributes(d.path, "ms")) for d in base_dots]
    for d in dots:
        if d.sd_ms:
            body.append(
                svg.whisker(y(d.step_ms - 2 * d.sd_ms), y(d.step_ms + 2 * d.sd_ms), x(d.n), "run", upright=True)
            )
        body.append(svg.circle(x(d.n), y(d.step_ms), "run", source.attributes(d.path, "ms")))
    return svg.figure(
        _ROW_WIDTH, 316, "step time against concurrency, with the fit of this run and of the baseline", body
    )


def history(source: Source, series: extras.Series) -> Markup:
    """The recorded medians of one concurrency, oldest first, with change points as labelled upright lines."""
    x = svg.Scale(-0.5, max(len(series.medians) - 0.5, 0.5), _LEFT, _RIGHT)
    y = svg.spanning(series.medians, 150, 22)
    body = [_y_axis(y, "", 3), svg.polyline([(x(i), y(m)) for i, m in enumerate(series.medians)], "curve run")]
    for i in series.changes:
        where = x(i - 0.5)
        body += [svg.line(where, 22, where, 150, "change"), svg.text(where, 14, "change", "small", "middle")]
    for i, m in enumerate(series.medians):
        mark = svg.triangle if i in series.changes else svg.circle
        css = "bad" if i in series.changes else "run"
        body.append(mark(x(i), y(m), css, source.attributes(series.median_paths[i], "tok/s")))
    body += [svg.text(_LEFT, 170, "oldest", "tick"), svg.text(_RIGHT, 170, "newest", "tick", "end")]
    return svg.figure(_WIDTH, 178, f"recorded medians at C={series.concurrency}, tokens/s", body)


def profile(source: Source) -> Markup:
    """GPU (or CPU) time by category: this run's share filled, the baseline's hatched below it. Raises extras.ShapeError."""
    path = "/extra/profile"
    data = source.get(path)
    mine = extras.shares(data, "shares", path)
    theirs = extras.shares(data, "baseline_shares", path)
    names = [*mine, *(n for n in theirs if n not in mine)]
    top = max([*mine.values(), *theirs.values()], default=0.0) or 1.0
    x = svg.Scale(0, top, 190, _RIGHT - 70)
    step = 40 if theirs else 26
    body = [_HATCH]
    for i, name in enumerate(names):
        y = 8 + i * step
        body.append(svg.text(180, y + 13, words.one_line(name, 28), "label", "end"))
        for key, values, css, drop in (("shares", mine, "share", 0), ("baseline_shares", theirs, "share hatched", 17)):
            if name in values:
                place = join(path, key, name)
                body.append(svg.rect(190, y + drop, x(values[name]) - 190, 14, css, source.attributes(place, "%")))
                body.append(_value_text(source, x(values[name]) + 6, y + drop + 11, place, "%"))
    device = "CPU" if data.get("device") == "CPU" else "GPU"
    return svg.figure(_WIDTH, 16 + step * len(names), f"{device} time by category, this run and the baseline", body)


def _value_text(source: Source, x: float, y: float, path: str, kind: str) -> Markup:
    return Markup('<text x="{}" y="{}" class="value"{}>{}</text>').format(
        x, y, source.attributes(path, kind), source.text(path, kind)
    )


def _x_axis(scale: svg.Scale, y: float, top: float, label: Any) -> Markup:
    parts = [svg.line(scale.start, y, scale.end, y, "frame")]
    for value in svg.ticks(scale, 6):
        parts += [
            svg.line(scale(value), top, scale(value), y, "grid"),
            svg.text(scale(value), y + 18, label(value), "tick", "middle"),
        ]
    return svg.joined(parts)


def _y_axis(scale: svg.Scale, unit: str, count: int = 5, end: float = _RIGHT) -> Markup:
    parts = []
    for value in svg.ticks(scale, count):
        parts.append(svg.line(_LEFT, scale(value), end, scale(value), "grid"))
        parts.append(svg.text(_LEFT - 8, scale(value) + 4, svg.tick_text(value) + unit, "tick", "end"))
    return svg.joined(parts)


def _powers(highest: float) -> Sequence[float]:
    return [2.0**i for i in range(20) if 2.0**i <= highest * 1.001]
