"""Choosing a configuration: candidates from axes, and the one that is fastest over a row's shapes (pure)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

WORTH = 0.02
"""A candidate displaces the table's configuration only where it is faster by this share: less comes and goes with noise."""


@dataclass(frozen=True)
class Candidate:
    """One configuration tried. ``refused``: why it may not be chosen; ``times_us`` by shape's key otherwise."""

    row: Any
    refused: str = ""
    times_us: Mapping[str, float] = field(default_factory=dict)


def varied(row: Any, path: str, value: Any) -> Any:
    """A copy of a table's row with the field at ``path`` (``config.block_n``) changed. Raises AttributeError."""
    name, _, rest = path.partition(".")
    old = getattr(row, name)
    return replace(row, **{name: varied(old, rest, value) if rest else value})


def candidates(row: Any, axes: Mapping[str, Sequence[Any]]) -> list[Any]:
    """The row itself first, then every combination of the axes' values that makes a row, each once."""
    found = [row]
    for values in itertools.product(*axes.values()):
        one = row
        try:
            for path, value in zip(axes, values, strict=True):
                one = varied(one, path, value)
        except ValueError:  # a kernel of one tiling has no other
            continue
        if one not in found:
            found.append(one)
    return found


def ratio(candidate: Candidate, current: Candidate) -> float:
    """Geometric mean over the shapes of the candidate's time over the table's."""
    logs = [math.log(candidate.times_us[key] / us) for key, us in current.times_us.items()]
    return math.exp(sum(logs) / len(logs))


def best(tried: Sequence[Candidate]) -> Candidate:
    """The one to have in the table; ``tried[0]`` is what stands there now.

    Only candidates that were not refused and were timed on every shape count. Where the present row is itself refused,
    the fastest of the others takes its place. Raises ValueError where none is left.
    """
    current = tried[0]
    keys = {key for one in tried for key in one.times_us}
    whole = [one for one in tried if not one.refused and keys and one.times_us.keys() == keys]
    if not whole:
        raise ValueError("no configuration fits, is right and was timed on every shape")
    if current not in whole:
        return min(whole, key=lambda one: ratio(one, whole[0]))
    fastest = min(whole, key=lambda one: ratio(one, current))
    return fastest if ratio(fastest, current) <= 1 - WORTH else current
