"""Wiring of the tier `kernelbench`: which shapes and implementations are timed, and what a run says of itself.

Needs torch, triton, pytest and pytest-benchmark alone, so that it runs on a bare GPU host with ``--confcutdir`` here.
"""

from __future__ import annotations

import os
import sys
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
from kernelbench.session import FACTS, measured  # noqa: E402

from perfgate.kernelbench.bars import quick_shapes  # noqa: E402
from perfgate.kernelbench.shapes import Shape, every_shape, kernel_of  # noqa: E402
from perfgate.kernelbench.table import render  # noqa: E402

PEER_SECONDS = 10.0
NO_GPU = "no CUDA device is visible: kernel speed can't be measured here; none of {} shapes was timed"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kernelbench: times the kernels on a GPU beside their peers")
    config.stash[FACTS] = {"absent": {}, "faults": {}, "wrong": {}, "quick": config.getoption("kernelbench_quick", False)}


def shapes(quick: bool) -> list[Shape]:
    """The shapes of this run, grouped by kernel."""
    wanted = quick_shapes() if quick else frozenset(every_shape()) | quick_shapes()
    order = {shape: at for at, shape in enumerate(every_shape())}
    return sorted(wanted, key=lambda shape: (list("dith").index(kernel_of(shape)[0]), order.get(shape, len(order))))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "implementation" not in metafunc.fixturenames:
        if "verdicts" in metafunc.fixturenames and "shape" in metafunc.fixturenames:
            own = shapes(metafunc.config.stash[FACTS]["quick"]) if cards.visible() else [None]
            metafunc.parametrize("shape", own, ids=lambda shape: shape.key if shape else "no-gpu")
        return
    facts = metafunc.config.stash[FACTS]
    pairs: list[Any] = []
    if not cards.visible():
        # One test that fails, and not hundreds that say the same.
        pairs.append(pytest.param(None, None, id="no-gpu"))
    else:
        for shape in shapes(facts["quick"]):
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


@pytest.fixture(scope="session")
def card(request: pytest.FixtureRequest) -> torch.device:
    """The GPU to measure on, its rates measured first. Fails where there is none, or where workers would share it."""
    if not cards.visible():
        pytest.fail(NO_GPU.format(len(shapes(request.config.stash[FACTS]["quick"]))), pytrace=False)
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
def facts(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What this run says of itself beside its times; goes to the stored file's ``machine_info.kernelbench``."""
    return request.config.stash[FACTS]


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    if "fingerprint" in config.stash[FACTS]:
        machine_info["kernelbench"] = config.stash[FACTS]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    run = measured(config)
    if run is not None:
        terminalreporter.section("kernels")
        terminalreporter.write(render(run))
