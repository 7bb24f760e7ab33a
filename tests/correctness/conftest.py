"""Profiles, device and markers of the correctness tests; importing this settles how Triton runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

# Without a GPU the same test bodies run under Triton's interpreter, which is chosen when triton is imported.
if torch.cuda.is_available():
    os.environ.pop("TRITON_INTERPRET", None)
elif "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError("triton was imported before TRITON_INTERPRET was set: load tests/correctness/conftest.py first")
else:
    os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

# Interpreted examples take seconds, and how many depends on the machine: no deadlines, no health check of speed.
_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    "print_blob": True,
}
# ci: what a change must pass, within minutes on 2 cores without a GPU. dev: before a commit. deep: on a GPU.
settings.register_profile("ci", max_examples=8, phases=(Phase.explicit, Phase.generate), **_COMMON)
settings.register_profile("dev", max_examples=25, **_COMMON)
settings.register_profile("deep", max_examples=500, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "correctness: kernels against their oracles; runs with and without a GPU")
    config.addinivalue_line("markers", "field_case(name): the fault of field_cases.md that the test would have caught")
    # hypothesis's own option is read before this folder's profiles exist when tests are named by path from elsewhere.
    profile = config.getoption("--hypothesis-profile", default=None)
    if profile:
        settings.load_profile(profile)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.correctness)


def pytest_report_header() -> str:
    engine = torch.cuda.get_device_name() if torch.cuda.is_available() else "Triton's interpreter (no GPU found)"
    return f"correctness: kernels run on {engine}, {settings().max_examples} examples a property"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and report.failed and HERE in Path(item.path).parents:
        seed = getattr(getattr(item, "obj", None), "_hypothesis_internal_use_generated_seed", None)
        seed = "" if seed is None else f" --hypothesis-seed={seed}"
        profile = f" --hypothesis-profile={settings().get_current_profile_name()}"
        report.sections.append(("reproduce", f"python -m pytest '{item.nodeid}'{profile}{seed}"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The first CUDA device (each xdist worker its own where there are several), else the CPU for the interpreter."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    chosen = torch.device("cuda", int(worker) % torch.cuda.device_count())
    torch.cuda.set_device(chosen)
    return chosen
