"""The parts of ``RunResult.extra`` that the report draws, read into one shape each.

The keys and what they hold (every part, and every key marked ?, may be absent):

``scaling``  {a, b, e?, experts? [number, chosen a token], asymptote? tok/s, residual_p?, intervals? {a: [low, high]},
             points: [{n, step_ms, sd_ms?}] or [[n, step_ms, sd_ms]], laws? [text],
             baseline? {a, b, e?, experts?, points?}}; times in ms; without a and b where the points gave no fit
``history``  {"1": [{date, commit?, median or throughput, …}], change_points? {"1": [index, …]}}; medians in tok/s
``profile``  {shares: {category: share}, baseline_shares? {category: share}, device? "GPU" or "CPU", concurrency?, said?,
             tensor_cores?, baseline_tensor_cores?, points? {"16": the same}}
``kernels``, ``preflight``, ``loosened``, ``orphaned_baselines``  lists of texts or of flat tables
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfgate.report.pointer import join

DSV4_EXPERTS = (256, 6)
"""DeepSeek-V4-Flash: six routed experts a token, of 256."""

DRAWN = ("scaling", "history", "profile", "kernels", "preflight", "loosened", "orphaned_baselines")


class ShapeError(ValueError):
    """A part of ``extra`` that is not as described above; the message names the place and what was found."""


@dataclass(frozen=True)
class Fit:
    """step(N) = a + e*E(N) + b*N in ms, with E(N) = M*(1 - ((M-k)/M)^N) experts touched of M, k a token."""

    a: float
    b: float
    e: float = 0.0
    experts: tuple[int, int] = DSV4_EXPERTS

    def __call__(self, n: float) -> float:
        many, chosen = self.experts
        return self.a + self.b * n + self.e * many * (1 - math.pow((many - chosen) / many, n))


@dataclass(frozen=True)
class Dot:
    """One measured step time (ms) at concurrency ``n``, with the pointers of both."""

    n: float
    n_path: str
    step_ms: float
    path: str
    sd_ms: float | None = None


@dataclass(frozen=True)
class Series:
    """The recorded medians of one concurrency, oldest first, each with its pointer."""

    concurrency: str
    path: str
    medians: tuple[float, ...]
    changes: tuple[int, ...] = ()
    median_paths: tuple[str, ...] = ()


def fit(scaling: Mapping[str, Any], path: str) -> Fit | None:
    """None where the points gave no fit. Raises ShapeError."""
    if "a" not in scaling and "b" not in scaling:
        return None
    experts = scaling.get("experts")
    if isinstance(experts, list) and len(experts) == 2:
        experts = (int(experts[0]), int(experts[1]))
    else:
        experts = (int(experts), DSV4_EXPERTS[1]) if isinstance(experts, int) and experts > 6 else DSV4_EXPERTS
    e = scaling.get("e")
    slope = 0.0 if e is None else _number(scaling, "e", path)
    return Fit(_number(scaling, "a", path), _number(scaling, "b", path), slope, experts)


def dots(scaling: Mapping[str, Any], path: str) -> list[Dot]:
    """Raises ShapeError."""
    rows = scaling.get("points") or []
    if not isinstance(rows, list):
        raise ShapeError(f"{path}/points: expected a list, got {type(rows).__name__}")
    found = []
    for i, row in enumerate(rows):
        place = join(path, "points", i)
        if isinstance(row, list) and len(row) >= 2:
            row = {str(k): v for k, v in enumerate(row)}
            n, step, sd = "0", "1", "2"
        elif isinstance(row, Mapping):
            n, step, sd = "n", "step_ms", "sd_ms"
        else:
            raise ShapeError(f"{place}: expected [n, step_ms, sd_ms] or a table, got {row!r}")
        spread = _number(row, sd, place) if row.get(sd) is not None else None
        found.append(Dot(_number(row, n, place), join(place, n), _number(row, step, place), join(place, step), spread))
    if any(dot.n < 1 for dot in found):
        raise ShapeError(f"{path}/points: a concurrency is below 1")
    return found


def series(history: Mapping[str, Any], path: str) -> list[Series]:
    """Raises ShapeError."""
    changes = history.get("change_points") or {}
    found = []
    for key, rows in history.items():
        if key == "change_points":
            continue
        place = join(path, key)
        if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
            raise ShapeError(f"{place}: expected a list of tables with date and median")
        names = tuple("median" if "median" in row else "throughput" for row in rows)
        medians = tuple(
            _number(row, name, join(place, i)) for i, (row, name) in enumerate(zip(rows, names, strict=True))
        )
        marked = changes.get(key, []) if isinstance(changes, Mapping) else []
        if any(not isinstance(i, int) or not 0 <= i < len(medians) for i in marked):
            raise ShapeError(f"{path}/change_points/{key}: {marked!r} are not all indices of {len(medians)} medians")
        found.append(Series(key, place, medians, tuple(marked), tuple(join(place, i, n) for i, n in enumerate(names))))
    return sorted(found, key=lambda s: (not s.concurrency.isdigit(), s.concurrency.zfill(9)))


def shares(profile: Mapping[str, Any], name: str, path: str) -> dict[str, float]:
    """GPU time by category as shares of 1, largest first. Raises ShapeError."""
    rows = profile.get(name) or {}
    if not isinstance(rows, Mapping):
        raise ShapeError(f"{path}/{name}: expected a table of shares, got {type(rows).__name__}")
    values = {str(key): _number(rows, key, join(path, name)) for key in rows}
    return dict(sorted(values.items(), key=lambda item: (-item[1], item[0])))


def _number(row: Mapping[str, Any], key: str, path: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ShapeError(f"{join(path, key)}: expected a number, got {value!r}")
    return float(value)
