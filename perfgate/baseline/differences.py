"""Which fields of two nested records differ: what is named when a comparison is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Lines ``key.inner: old -> new``, sorted by key; a field that one side lacks reads ``absent`` there."""
    left, right = _flat(old), _flat(new)
    return [
        f"{key}: {left.get(key, 'absent')} -> {right.get(key, 'absent')}"
        for key in sorted(left.keys() | right.keys())
        if left.get(key, "absent") != right.get(key, "absent")
    ]


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = repr(list(value) if isinstance(value, tuple) else value)
    return flat
