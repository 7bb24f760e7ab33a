"""Markers of the fault tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "field_case(id): the row of the field cases that a test stands for")
