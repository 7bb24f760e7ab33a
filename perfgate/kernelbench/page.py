"""A run as one self-contained page: its plots, log-log and with the roofline, and every figure as text (pure)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

from perfgate.kernelbench.rows import Run
from perfgate.kernelbench.series import Plot, plots
from perfgate.kernelbench.table import render as table
from perfgate.report import svg
from perfgate.report.templating import environment

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 620, 64, 470, 14, 250
_LABEL_STEP = 14
_MARKS = (svg.diamond, svg.triangle, svg.square)


def render(run: Run) -> str:
    """The page; the same bytes for the same run."""
    drawn = [(one, draw(one)) for one in plots(run)]
    return environment().get_template("kernels.html.j2").render(run=run, drawn=drawn, table=table(run))


def draw(plot: Plot) -> Markup:
    """Time against one thing, both axes logarithmic: ours filled, peers hollow, the least possible time dashed."""
    x = _log([at for at, _ in plot.roof], _LEFT, _RIGHT)
    times = [us for line in plot.lines for _, us in line.points] + [us for _, us in plot.roof]
    y = _log(times, _BOTTOM, _TOP)
    body = [svg.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "frame")]
    for at, _ in plot.roof:
        body += [
            svg.line(x(at), _TOP, x(at), _BOTTOM, "grid"),
            svg.text(x(at), _BOTTOM + 18, f"{at:,.0f}", "tick", "middle"),
        ]
    for power in _decades(y):
        body += [
            svg.line(_LEFT, y(power), _RIGHT, y(power), "grid"),
            svg.text(_LEFT - 8, y(power) + 4, f"{power:g} us", "tick", "end"),
        ]
    body.append(svg.text((_LEFT + _RIGHT) / 2, _BOTTOM + 36, plot.axis, "axis", "middle"))
    body.append(svg.polyline([(x(at), y(us)) for at, us in plot.roof], "curve roof"))
    labels = [(y(plot.roof[-1][1]), "roofline")]
    peers = 0
    for line in plot.lines:
        spots = [(x(at), y(us)) for at, us in line.points]
        body.append(svg.polyline(spots, "curve run" if line.ours else "curve peer"))
        mark = svg.circle if line.ours else _MARKS[peers % len(_MARKS)]
        peers += not line.ours
        for (left, top), (at, us) in zip(spots, line.points, strict=True):
            said = Markup("><title>{} at {:g}: {:.1f} us</title").format(line.label, at, us)
            body.append(_with_title(mark(left, top, "run" if line.ours else "baseline"), said))
        labels.append((spots[-1][1], line.label))
    body += [svg.text(_RIGHT + 10, at + 4, words, "label") for at, words in _apart(labels)]
    return svg.figure(_WIDTH, _BOTTOM + 46, f"{plot.title}: time against {plot.axis}, log-log, with the roofline", body)


def _with_title(mark: Markup, title: Markup) -> Markup:
    """The mark with words that a pointer over it shows."""
    name = str(mark)[1:].split(" ", 1)[0]
    return Markup(str(mark).removesuffix("/>") + str(title) + f"></{name}>")


def _log(values: Iterable[float], start: float, end: float) -> svg.Scale:
    low, high = min(known := list(values)), max(known)
    return svg.Scale(low / 1.15, high * 1.15, start, end, log=True)


def _decades(scale: svg.Scale) -> list[float]:
    """Round times on the axis: powers of ten, with 2 and 5 between them where there are few."""
    lowest, highest = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    steps = (1,) if highest - lowest > 3 else (1, 2, 5)
    found = [step * 10.0**power for power in range(lowest, highest + 1) for step in steps]
    return [value for value in found if scale.holds(value)]


def _apart(labels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Labels moved down until none lies on another."""
    placed: list[tuple[float, str]] = []
    for at, words in sorted(labels):
        placed.append((max(at, placed[-1][0] + _LABEL_STEP) if placed else at, words))
    return placed
