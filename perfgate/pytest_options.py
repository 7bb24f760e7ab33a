"""The command-line options of the suite.

Registered through an entry point and not only by ``conftest.py``: pytest reads options before it looks for conftest files.
Before it knows them it takes the value of one for a path to test: ``--report DIR`` with a folder that exists outside of the
checkout moves pytest's root there, and what pyproject.toml says is never read. That ends with what to write instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

PLUGIN = "perfgate.pytest_options"
"""Also the name to give to ``-p`` where the package is on the path and not installed."""

PATHS = ("--recipe", "--against", "--tokenizer", "--baselines", "--report")
"""Options whose value may be a path."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, in this project's checkout alone: in another project's run they would only be in the way."""
    root = Path.cwd()
    if _is_checkout(root):
        add(parser, root)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """Raises UsageError where an option's value was taken for a path to test."""
    root = Path.cwd()
    if not _is_checkout(root) or early_config.inipath is not None:
        return
    for option, value in pairwise(args):
        if option in PATHS and Path(value).exists():
            raise pytest.UsageError(f"write {option}={value}: with a space between, pytest takes it for a path to test")


def _is_checkout(root: Path) -> bool:
    return (root / "recipes").is_dir() and (root / "perfgate").is_dir()


def add(parser: pytest.Parser, root: Path) -> None:
    """All options; ``root`` is the checkout."""
    group = parser.getgroup("perfgate", "throughput gate (pytest -m perf)")
    option = group.addoption
    option("--recipe", default="cpu-tiny", metavar="NAME", help="name in recipes/, or a .toml file (default: cpu-tiny)")
    option(
        "--concurrency",
        default=None,
        metavar="LIST",
        help="points to measure, as 1,16,64 (default: all of the recipe's)",
    )
    option(
        "--samples",
        type=int,
        default=None,
        metavar="N",
        help="samples a point, no more and no fewer (default: the recipe's)",
    )
    option(
        "--record", action="store_true", help="write what is measured as the baseline of this machine; needs --reason"
    )
    option("--reason", default="", metavar="TEXT", help="why, with --record; kept in the baseline file")
    option("--against", default=None, metavar="RECIPE", help="A/B: judge the recipe against this one, side by side")
    option(
        "--against-commit",
        default=None,
        metavar="REV",
        help="A/B: judge this checkout's kernels against those of this commit, side by side",
    )
    option(
        "--starts",
        type=int,
        default=None,
        metavar="N",
        help="server starts, each with --samples of its own: they show how far starts differ (default: 1); in an A/B of each "
        "side, in turns and one server at a time (default: 3 to 6 of them where a recipe takes all of a GPU's memory)",
    )
    option(
        "--profile",
        action="store_true",
        help="where a point regresses, a trace by SGLang's profiler: where the time went; with --record, of every point",
    )
    option("--server-url", default=None, metavar="URL", help="measure a server that already runs, at http://HOST:PORT")
    option(
        "--tokenizer",
        type=Path,
        default=None,
        metavar="DIR",
        help="the served model's tokenizer (default: the recipe's model)",
    )
    option(
        "--port", type=int, default=None, metavar="N", help="port for the server that is started (default: a free one)"
    )
    option(
        "--baselines",
        type=Path,
        default=root / "baselines",
        metavar="DIR",
        help="folder of baselines (default: baselines)",
    )
    option(
        "--report", type=Path, default=None, metavar="DIR", help="folder for results (default: perf-report/TIME-RECIPE)"
    )
    option(
        "--order-seed",
        type=int,
        default=None,
        metavar="N",
        help="seed of the order of samples and of their prompts (default: the time)",
    )
    kernels = parser.getgroup("kernelbench", "speed of the kernels (pytest -m kernelbench)").addoption
    kernels("--kernelbench-quick", action="store_true", help="time only the shapes that have a bar, in a few minutes")
    kernels(
        "--kernelbench-part",
        default=None,
        metavar="K/N",
        help="time every N-th shape from the K-th on; the files of all parts are judged and recorded together",
    )
    kernels(
        "--kernelbench-seconds",
        type=float,
        default=None,
        metavar="S",
        help="start nothing after so long: the run then fails, and its file says what is left (default: no limit)",
    )
    kernels(
        "--kernelbench-peer-seconds",
        type=float,
        default=None,
        metavar="S",
        help="time no peer on a shape whose replays would take longer; it is listed as too slow (default: 10)",
    )
