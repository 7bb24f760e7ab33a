"""The marker that ties a test to the faults of the field that it covers; the root conftest registers it too."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "field_case(*ids): rows of tests/field_cases.toml that this test covers")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real logs and client results."""
    return Path(__file__).parent.parent / "data"
