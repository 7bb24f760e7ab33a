"""Fixtures of the unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernelbench_kit import ours

from perfgate.kernelbench import recording


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real logs and client results."""
    return Path(__file__).parent.parent / "data"


@pytest.fixture
def kernels_recorded(tmp_path: Path) -> Path:
    """A file of kernel baselines with one shape of about 50 us."""
    path = tmp_path / "kernels" / "1x-nvidia-h200.json"
    recording.record(path, [ours(50.0)], reason="first", recorded_at="2026-11-30")
    return path
