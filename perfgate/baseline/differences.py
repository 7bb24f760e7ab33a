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


RECIPE = "recipe"
"""The part of a fingerprint that says what the recipe asks (``fingerprint.asked``)."""


def incomparable(old: Mapping[str, Any], new: Mapping[str, Any], concurrency: int) -> list[str]:
    """Why a baseline with the fingerprint ``old`` says nothing about a run with ``new`` at one point; nothing where it does.

    A recipe's other points do not matter. What files from before recipes were kept do not say is not held against them.
    """
    if not old and new:
        return ["it does not say on what machine or with what settings it was recorded"]
    if RECIPE not in old:
        new = {key: value for key, value in new.items() if key != RECIPE}
    return differences(_at(old, concurrency), _at(new, concurrency))


def _at(fingerprint: Mapping[str, Any], concurrency: int) -> Mapping[str, Any]:
    recipe = fingerprint.get(RECIPE)
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("prompts"), Mapping):
        return fingerprint
    return {**fingerprint, RECIPE: {**recipe, "prompts": recipe["prompts"].get(str(concurrency))}}


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in record.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = repr(list(value) if isinstance(value, tuple) else value)
    return flat
