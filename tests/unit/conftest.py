"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real logs and client results."""
    return Path(__file__).parent.parent / "data"
