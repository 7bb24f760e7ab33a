"""Options, markers and session fixtures of the suite: wiring alone. What they wire lives in perfgate."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from correctness import profiles

from perfgate import pytest_options

ROOT = Path(__file__).parent

# Before any test module imports Triton, and before hypothesis reads --hypothesis-profile.
profiles.choose_engine()
profiles.register()
TIERS = {
    "perf": "measures a server against its baseline: pytest -m perf",
    "correctness": "proves the kernels against their references: pytest -m correctness",
    "kernelbench": "times the kernels on a GPU beside their peers",
    "server": "uses the gate on a real CPU server in its rarer ways",
    "faults": "breaks a real server on purpose and looks at the verdict",
    "mutations": "breaks the kernels on purpose: each fault must be caught",
    "workflow": "runs the CI workflow's steps as a runner would",
    "evaluation": "measures how good the gate's own judgement is",
}
GATE = ("perf", "correctness")
"""Tiers whose tests all lie in tests/TIER."""
SLOW = ("kernelbench", "server", "faults", "mutations", "workflow", "evaluation")
"""Tiers of which a run without -m takes only the tests marked ``quick``."""


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    # Known already where the package is installed; see perfgate.pytest_options for why.
    if not pluginmanager.has_plugin(pytest_options.PLUGIN):
        pytest_options.add(parser, ROOT)


def pytest_configure(config: pytest.Config) -> None:
    for name, text in TIERS.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    config.addinivalue_line("markers", "quick: the share of a slow tier that every test run takes")
    config.addinivalue_line(
        "markers", "field_case(id): the fault reported from the field that this test guards against"
    )
    with contextlib.suppress(ValueError):  # only the main thread may; elsewhere the default stays
        signal.signal(signal.SIGTERM, _as_interrupt)
    if hasattr(config, "workerinput"):
        config.option.loadgroup = config.workerinput["loadgroup"]
    else:
        config.stash[STARTED] = time.time()
        if config.option.markexpr == "perf" and not config.option.help:
            _usage(lambda: options(config))  # before anything is collected, so that it is one line


def _as_interrupt(signum: int, frame: object) -> None:
    """A cancelled CI job gets SIGTERM: leave through the fixtures, so that the server goes too."""
    raise KeyboardInterrupt


STARTED = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    # The tests of one measurement belong on one worker, whatever the number of workers.
    if getattr(config.option, "numprocesses", None) and config.option.dist in ("no", "load"):
        config.option.dist = "loadgroup"


def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: every worker writes to the controller's report folder."""
    node.workerinput["report"] = str(report_folder(node.config))
    # What is not on the command line does not reach a worker, which groups tests only where this is set.
    node.workerinput["loadgroup"] = node.config.option.dist == "loadgroup"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    # pytest-xdist 3.8 writes a test's group into an attribute that pytest 9.2 no longer reads: groups came to nothing.
    for item in session.items:
        grouped = getattr(item, "_nodeid", None)
        if grouped and grouped != item.nodeid:
            from _pytest.nodeid import coerce_node_id

            item._id = coerce_node_id(grouped)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "concurrency" in metafunc.fixturenames:
        points = _usage(lambda: options(metafunc.config).concurrencies)
        metafunc.parametrize("concurrency", points, ids=[f"C={c}" for c in points])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # A GPU host has what the gate needs and not what all other tests import: their folders stay closed.
    folder = ROOT / "tests" / config.option.markexpr
    if config.option.markexpr not in GATE or collection_path == ROOT or collection_path in folder.parents:
        return None
    return None if collection_path.is_relative_to(folder) else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    kept, left = [], []
    for item in items:
        slow = any(item.get_closest_marker(tier) for tier in SLOW) and not item.get_closest_marker("quick")
        (left if slow or item.get_closest_marker("perf") else kept).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)
        config.stash[LEFT] = sorted({t for i in left for t in TIERS if i.get_closest_marker(t)})


LEFT = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    from perfgate.report import jsonfile, terminal

    if left := config.stash.get(LEFT, []):
        terminalreporter.write_line(
            f"not run without -m: whole tiers {', '.join(left)} (slow ones ran their quick share)"
        )
    path = report_folder(config) / "result.json"
    if not path.is_file() or path.stat().st_mtime < config.stash[STARTED]:
        return
    terminalreporter.section("perfgate")
    terminalreporter.write(terminal.render(jsonfile.read(path)))
    terminalreporter.write_line(f"results: {path.parent}")


def report_folder(config: pytest.Config) -> Path:
    """The folder of this run's results; the same for all workers."""
    if hasattr(config, "workerinput"):
        return Path(config.workerinput["report"])
    if config.stash.get(FOLDER, None) is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        default = Path.cwd() / "perf-report" / f"{stamp}-{Path(config.option.recipe).stem}"
        config.stash[FOLDER] = (config.option.report or default).absolute()
    return config.stash[FOLDER]


FOLDER = pytest.StashKey[Path | None]()


def options(config: pytest.Config) -> Any:
    """The checked options of a perf run. Raises OptionError or RecipeError."""
    from perfgate import options as opt
    from perfgate import recipe, revision

    given = config.option
    path = recipe.find(given.recipe, ROOT / "recipes")
    chosen = recipe.load(path)
    samples = chosen.workload.samples if given.samples is None else given.samples
    if given.against is not None and given.against_commit is not None:
        raise opt.OptionError("give --against RECIPE or --against-commit REV, not both: one difference at a time")
    commit = None if given.against_commit is None else revision.resolve(ROOT, given.against_commit)
    against = chosen if commit is not None else None
    if given.against:
        against = recipe.load(recipe.find(given.against, ROOT / "recipes"))
    made = opt.Options(
        recipe=chosen,
        recipe_file=path,
        concurrencies=opt.concurrencies(given.concurrency, chosen),
        samples=samples,
        max_samples=max(samples, chosen.workload.max_samples if given.samples is None else samples),
        baselines=given.baselines.absolute(),
        report=report_folder(config),
        record=given.record,
        reason=given.reason,
        against=against,
        against_commit=commit,
        starts=given.starts,
        server_url=given.server_url,
        tokenizer=given.tokenizer,
        port=given.port,
        profile=given.profile,
        seed=given.order_seed if given.order_seed is not None else int(time.time()),
        command=("pytest", *config.invocation_params.args),
    )
    opt.check(made)
    return made


def _usage(call: Callable[[], Any]) -> Any:
    from perfgate.options import OptionError, RecipeError

    try:
        return call()
    except (OptionError, RecipeError) as error:
        raise pytest.UsageError(str(error)) from None


@pytest.fixture(scope="session")
def show(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Writes a line of progress past pytest's capturing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"  perfgate: {line}", file=sys.stderr, flush=True)

    return write


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder that all workers of this run see, and no other run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if hasattr(request.config, "workerinput") else base) / "perfgate"


@pytest.fixture(scope="session")
def gate(request: pytest.FixtureRequest, shared_folder: Path, show: Callable[[str], None]) -> Iterator[Any]:
    """The measured and judged run, a perfgate.result.RunResult: one for all tests of the perf tier."""
    from perfgate import session
    from perfgate.baseline import BaselineError
    from perfgate.server import ServerError

    chosen = _usage(lambda: options(request.config))
    session.prepare(chosen)
    try:
        yield session.run(chosen, shared_folder, show)
    except (ServerError, BaselineError) as error:
        pytest.fail(str(error), pytrace=False)
