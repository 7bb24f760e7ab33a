"""Marker and command of this tier."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "evaluation: how good the judgement is, at full size (minutes)")
