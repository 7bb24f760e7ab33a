"""One self-contained page: no script, no address outside it, nothing unescaped, the same bytes for the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from markupsafe import Markup

from perfgate import __version__
from perfgate.report import extras, plots, words
from perfgate.report.pointer import Source, join
from perfgate.report.templating import environment
from perfgate.result import Outcome, RunResult


def render(result: RunResult) -> str:
    """The page. A part of ``extra`` that cannot be drawn is named, and shown as it is; nothing is left out."""
    source = Source(result.model_dump(mode="json"))
    drawn = {name: _guard(draw, source) for name, draw in (("scaling", plots.scaling), ("profile", plots.profile))}
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            r=source.data,
            s=source,
            outcome=result.outcome.value,
            good=result.outcome.passes,
            glyphs={str(k): v for k, v in words.GLYPHS.items()},
            judged=words.JUDGED_BY[result.judged_by],
            needs=[i for i, p in enumerate(result.points) if p.outcome is not Outcome.PASS],
            speed_plot=plots.metric(source, "throughput"),
            step_plot=plots.metric(source, "step_time"),
            drawn=drawn,
            history=_guard_history(source),
            others={k: v for k, v in result.extra.items() if k not in extras.DRAWN},
            flat=flat,
            columns=columns,
            join=join,
            version=__version__,
        )
    )


def flat(source: Source, path: str) -> Iterator[tuple[str, str]]:
    """Each leaf below a pointer as its name (keys joined by dots) and its own pointer."""
    value = source.get(path)
    if isinstance(value, Mapping) and value:
        for key in value:
            for name, place in flat(source, join(path, key)):
                yield (f"{key}.{name}" if name else str(key)), place
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for i in range(len(value)):
            for name, place in flat(source, join(path, i)):
                yield (f"{i}.{name}" if name else str(i)), place
    else:
        yield "", path


def columns(rows: list[Any]) -> list[str]:
    """The keys of a list of tables, in the order in which they first appear; none where a row is not a table."""
    if not all(isinstance(row, Mapping) for row in rows):
        return []
    return list(dict.fromkeys(str(key) for row in rows for key in row))


def _guard(draw: Callable[[Source], Markup], source: Source) -> Markup | str | None:
    name = draw.__name__
    if not source.data["extra"].get(name):
        return None
    try:
        return draw(source)
    except (extras.ShapeError, ValueError, AttributeError, OverflowError) as error:
        return str(error)


def _guard_history(source: Source) -> list[tuple[extras.Series, Markup]] | str | None:
    data = source.data["extra"].get("history")
    if not data:
        return None
    try:
        return [(one, plots.history(source, one)) for one in extras.series(data, "/extra/history")]
    except (extras.ShapeError, ValueError, AttributeError) as error:
        return str(error)
