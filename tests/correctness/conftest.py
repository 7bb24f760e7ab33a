"""Profiles, device and markers of the correctness tests; importing this settles how Triton runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
for folder in (str(HERE), str(HERE.parent)):
    if folder not in sys.path:
        sys.path.insert(0, folder)

from correctness import profiles  # noqa: E402

profiles.choose_engine()
profiles.register()

import torch  # noqa: E402

# The device files may be there and the GPU hidden all the same.
if torch.cuda.is_available():
    os.environ.pop("TRITON_INTERPRET", None)
elif os.environ.get("TRITON_INTERPRET") != "1":
    if "triton" in sys.modules:
        raise RuntimeError("no GPU is visible, and triton was imported before TRITON_INTERPRET=1 was set: set it")
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "correctness: kernels against their oracles; runs with and without a GPU")
    config.addinivalue_line("markers", "field_case(name): the fault of field_cases.md that the test would have caught")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if profiles.PARTS > 1 and getattr(metafunc.function, "is_hypothesis_test", False):
        metafunc.fixturenames.append("property_part")
        parts = range(profiles.PARTS)
        metafunc.parametrize("property_part", parts, indirect=True, ids=[f"part{part}" for part in parts])


@pytest.fixture
def property_part(request: pytest.FixtureRequest) -> int:
    """Which share of a property's examples this test draws; they differ by their random seed alone."""
    return request.param


def _profile(config: pytest.Config) -> str:
    given = config.getoption("--hypothesis-profile", default=None)
    return given or os.environ.get("HYPOTHESIS_PROFILE") or profiles.DEFAULT


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """A property takes the settings that hold when its module is imported: this folder's, and no other folder's."""
    before = settings.get_current_profile_name()
    settings.load_profile(_profile(collector.config))
    yield
    settings.load_profile(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.correctness)


def pytest_report_header(config: pytest.Config) -> str:
    engine = torch.cuda.get_device_name() if torch.cuda.is_available() else "Triton's interpreter (no GPU found)"
    examples = settings.get_profile(_profile(config)).max_examples
    parts = f" in each of {profiles.PARTS} parts" if profiles.PARTS > 1 else ""
    return f"correctness: kernels run on {engine}, {examples} examples a property{parts}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed and HERE in Path(item.path).parents:
        seed = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_generated_seed", None)
        seed = "" if seed is None else f" --hypothesis-seed={seed}"
        parts = f"DSV4_PROPERTY_PARTS={profiles.PARTS} " if profiles.PARTS > 1 else ""
        command = f"{parts}python -m pytest '{item.nodeid}' --hypothesis-profile={_profile(item.config)}{seed}"
        report.sections.append(("reproduce", command))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The first CUDA device (each xdist worker its own where there are several), else the CPU for the interpreter."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    chosen = torch.device("cuda", int(worker) % torch.cuda.device_count())
    torch.cuda.set_device(chosen)
    return chosen
