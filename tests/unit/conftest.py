"""Markers of the unit tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "field_case(id, ...): rows of the field cases that the test protects against")
