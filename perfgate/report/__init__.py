"""What a run came to, for a terminal, for a program, for a job summary and for a browser. Pure but for ``save``."""

from pathlib import Path

from perfgate.report import html, jsonfile, markdown, terminal
from perfgate.report.jsonfile import ResultError
from perfgate.result import RunResult

__all__ = ["ResultError", "html", "jsonfile", "markdown", "save", "terminal"]


def save(result: RunResult, folder: Path) -> None:
    """Write ``result.json``, ``summary.md`` and ``report.html`` into ``folder``, the JSON first.

    Each is written whole or not at all. Raises ResultError (a number that is not finite) and OSError.
    """
    jsonfile.write(result, folder / "result.json")
    jsonfile.write_text(folder / "summary.md", markdown.render(result))
    jsonfile.write_text(folder / "report.html", html.render(result))
