"""The command-line options of the suite.

Registered through an entry point and not only by ``conftest.py``: pytest reads options before it looks for conftest files, and
takes the value of one that it does not know yet for a path to test. ``--report DIR`` with a folder that exists outside of the
checkout then moves pytest's root there, and the conftest that knows the option is never found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

PLUGIN = "perfgate.pytest_options"
"""Also the name to give to ``-p`` where the package is on the path and not installed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, in this project's checkout alone: in another project's run they would only be in the way."""
    root = Path.cwd()
    if (root / "recipes").is_dir() and (root / "perfgate").is_dir():
        add(parser, root)


def add(parser: pytest.Parser, root: Path) -> None:
    """All options; ``root`` is the checkout."""
    group = parser.getgroup("perfgate", "throughput gate (pytest -m perf)")
    option = group.addoption
    option("--recipe", default="cpu-tiny", help="name in recipes/, or a .toml file (default: cpu-tiny)")
    option("--concurrency", default=None, help="points to measure, as 1,16,64 (default: all of the recipe's)")
    option("--samples", type=int, default=None, help="samples a point, no more and no fewer (default: the recipe's)")
    option("--record", action="store_true", help="write what is measured as the baseline of this machine")
    option("--reason", default="", help="why, with --record; kept in the baseline file")
    option("--against", default=None, metavar="RECIPE", help="A/B: judge the recipe against this one, side by side")
    option(
        "--against-commit",
        default=None,
        metavar="REV",
        help="A/B: judge this checkout's kernels against those of this commit, side by side",
    )
    option(
        "--alternate",
        type=int,
        default=None,
        metavar="STARTS",
        help="A/B with one server at a time, this many starts of each side (default: 3 to 6 where a recipe takes all memory)",
    )
    option(
        "--profile",
        action="store_true",
        help="where a point regresses, a trace by SGLang's profiler: where the time went; with --record, of every point",
    )
    option("--server-url", default=None, help="measure a server that already runs")
    option("--tokenizer", type=Path, default=None, help="tokenizer folder, with --server-url")
    option("--port", type=int, default=None, help="port for the server that is started (default: a free one)")
    option("--baselines", type=Path, default=root / "baselines", help="folder of baselines")
    option("--report", type=Path, default=None, help="folder for results (default: perf-report/TIME-RECIPE)")
    option("--order-seed", type=int, default=None, help="seed of the order of samples and of their prompts")
    kernels = parser.getgroup("kernelbench", "speed of the kernels (pytest -m kernelbench)").addoption
    kernels("--kernelbench-quick", action="store_true", help="time only the shapes that have a bar, in a few minutes")
