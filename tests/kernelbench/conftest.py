"""Wiring of the tier `kernelbench`: which shapes and implementations are timed, and what a run says of itself.

Needs torch, triton, pytest and pytest-benchmark alone, so that it runs on a bare GPU host with ``--confcutdir`` here.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
for folder in (HERE.parent / "correctness", HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import torch  # noqa: E402

# The same choice as the correctness tests make: a visible GPU compiles, none interprets.
if torch.cuda.is_available():
    os.environ.pop("TRITON_INTERPRET", None)
elif "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"

from kernelbench import card as cards  # noqa: E402
from kernelbench.peers import implementations, missing  # noqa: E402
from kernelbench.session import BEGAN, FACTS, SHARE, Share, measured  # noqa: E402

from perfgate.kernelbench.bars import OURS, quick_shapes  # noqa: E402
from perfgate.kernelbench.shapes import Shape, every_shape, kernel_of  # noqa: E402
from perfgate.kernelbench.sources import digests  # noqa: E402
from perfgate.kernelbench.table import render  # noqa: E402

PEER_SECONDS = 10.0
NO_GPU = "no CUDA device is visible: kernel speed can't be measured here; none of {} shapes was timed"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kernelbench: times the kernels on a GPU beside their peers")
    quick = config.getoption("kernelbench_quick", False)
    config.stash[SHARE] = Share.of(shapes(quick), config.getoption("kernelbench_part", None))
    config.stash[BEGAN] = time.monotonic()
    config.stash[FACTS] = {"absent": {}, "faults": {}, "wrong": {}, "quick": quick, "sources": digests()}


def shapes(quick: bool) -> list[Shape]:
    """The shapes of this run's share, grouped by kernel."""
    wanted = quick_shapes() if quick else frozenset(every_shape()) | quick_shapes()
    order = {shape: at for at, shape in enumerate(every_shape())}
    return sorted(wanted, key=lambda shape: (list("dith").index(kernel_of(shape)[0]), order.get(shape, len(order))))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "implementation" not in metafunc.fixturenames:
        if "verdicts" in metafunc.fixturenames and "shape" in metafunc.fixturenames:
            own = metafunc.config.stash[SHARE].own if cards.visible() else [None]
            metafunc.parametrize("shape", own, ids=lambda shape: shape.key if shape else "no-gpu")
        return
    facts = metafunc.config.stash[FACTS]
    pairs: list[Any] = []
    if not cards.visible():
        # One test that fails, and not hundreds that say the same.
        pairs.append(pytest.param(None, None, id="no-gpu"))
    else:
        for shape in metafunc.config.stash[SHARE].own:
            for one in implementations(shape):
                if why := missing(one):
                    facts["absent"].setdefault(f"{one.name} ({kernel_of(shape)})", why)
                else:
                    pairs.append(pytest.param(shape, one, id=f"{shape.key}-{one.name.replace(' ', '-')}"))
    metafunc.parametrize(("shape", "implementation"), pairs)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if cards.visible():
        return
    # The one test that says so is enough.
    left = [item for item in items if item.path == HERE / "test_verdict.py"]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What this run is asked to measure, for whoever judges its file: all of its share, or what was selected of it."""
    timed = [item.callspec.params for item in session.items if item.path == HERE / "test_speed.py"]  # type: ignore[attr-defined]
    chosen = [call["shape"] for call in timed if call["shape"] is not None and call["implementation"].name == OURS]
    share, facts = session.config.stash[SHARE], session.config.stash[FACTS]
    facts["asked"] = [shape.key for shape in chosen]
    facts["partial"] = set(chosen) != set(share.whole)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """End the session where its time is over: what is left of it is in the file, as asked for and not measured."""
    most, config = item.config.getoption("kernelbench_seconds", None), item.config
    if most is not None and time.monotonic() - config.stash[BEGAN] > most:
        item.session.shouldfail = f"out of time after {most:g} s"
        asked, timed = config.stash[FACTS].get("asked", ()), _timed(config)
        left = sum(key not in timed for key in asked)
        why = f"out of time: {left} of {len(asked)} shapes are left, measure less at a time (--kernelbench-part K/N)"
        pytest.fail(why, pytrace=False)


def _timed(config: pytest.Config) -> dict[str, Any]:
    run = measured(config)
    return run.ours() if run is not None else {}


@pytest.fixture(scope="session")
def card(request: pytest.FixtureRequest) -> torch.device:
    """The GPU to measure on, its rates measured first. Fails where there is none, or where workers would share it."""
    if not cards.visible():
        pytest.fail(NO_GPU.format(len(request.config.stash[SHARE].own)), pytrace=False)
    if request.config._benchmarksession.disabled:  # type: ignore[attr-defined]
        pytest.fail("pytest-benchmark is switched off (by -n or --benchmark-disable): run without it", pytrace=False)
    device = cards.device()
    request.config.stash[FACTS].update(cards.facts(device))
    return device


@pytest.fixture
def peer_seconds(request: pytest.FixtureRequest) -> float:
    """What the replays of one peer on one shape may cost."""
    return float(request.config.getoption("kernelbench_peer_seconds", None) or PEER_SECONDS)


@pytest.fixture
def share(request: pytest.FixtureRequest) -> Share:
    """The shapes of this run, and of the share that it is a part of."""
    return request.config.stash[SHARE]


@pytest.fixture
def facts(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What this run says of itself beside its times; goes to the stored file's ``machine_info.kernelbench``."""
    return request.config.stash[FACTS]


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    if "fingerprint" in config.stash[FACTS]:
        run = measured(config)
        over = run.over_roof() if run is not None else []
        config.stash[FACTS]["over_roof"] = {f"{row.shape.key} {row.label}": round(part, 4) for row, part in over}
        machine_info["kernelbench"] = config.stash[FACTS]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = measured(config)
    if run is not None:
        terminalreporter.section("kernels")
        terminalreporter.write(render(run))
