"""What one run measured, read from pytest-benchmark's JSON: one row a shape and implementation (pure)."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfgate.kernelbench.bars import MINE, OURS, Cell
from perfgate.kernelbench.roofline import Rates, least_us
from perfgate.kernelbench.roofline import restore as restore_rates
from perfgate.kernelbench.shapes import Shape, restore

LEAST_REPLAYS = 50
MOST_OF_THE_ROOF = 1.02
"""Rates and times are both measured, to a percent or so; nothing is faster than the roofline by more than that."""


class RunError(ValueError):
    """A stored run that cannot be used; the message names the place and what is wrong there."""


@dataclass(frozen=True)
class Row:
    """Times of one implementation on one shape, in microseconds, in the order they were taken.

    ``blocks`` numbers the block of replays that each time belongs to; ``checked`` says what its output was held to.
    ``sm_mhz``: the lowest SM clock while it was replayed, ``top_mhz`` the highest that the card has; ``noted``: reasons of
    the driver's that slowed nothing down.
    """

    shape: Shape
    implementation: str
    label: str
    times_us: tuple[float, ...]
    blocks: tuple[int, ...]
    checked: str
    sm_mhz: int | None = None
    throttled: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    top_mhz: int | None = None

    @property
    def median_us(self) -> float:
        return statistics.median(self.times_us)

    @property
    def spread(self) -> float:
        """Half the middle half of the times, as a share of the median."""
        quarters = statistics.quantiles(self.times_us, n=4)
        return (quarters[2] - quarters[0]) / 2 / self.median_us


@dataclass(frozen=True)
class Run:
    """A stored run: its rows, the card's fingerprint, the rates measured in it, and what was not timed and why.

    ``faults``: peers that could not be timed; ``wrong``: our own whose output was wrong, or that failed, by shape. ``asked``:
    keys of the shapes that it was to measure, ``partial`` where those are not its whole share (in files from before these
    were stored: empty, and the whole). ``sources``: by kernel, what its source files come to (``sources.digests``).
    """

    rows: tuple[Row, ...]
    fingerprint: Mapping[str, Any]
    rates: Rates
    absent: Mapping[str, str] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    quick: bool = False
    date: str = ""
    commit: str | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    partial: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    def medians(self) -> dict[Cell, float]:
        """Median microseconds by shape and implementation."""
        return {(row.shape, row.implementation): row.median_us for row in self.rows}

    def ours(self) -> dict[str, Row]:
        """Our own rows by the shape's key."""
        return {row.shape.key: row for row in self.rows if row.implementation == OURS}

    def lacking(self) -> list[str]:
        """Keys of shapes that it was asked to measure and has no time of ours for, whatever became of them."""
        mine = self.ours()
        return [key for key in self.asked if key not in mine]

    def best_peer_us(self, shape: Shape) -> float | None:
        """The fastest peer's median of those that were timed on a shape."""
        return min((r.median_us for r in self.rows if r.shape == shape and r.implementation not in MINE), default=None)

    def over_roof(self) -> list[tuple[Row, float]]:
        """Rows whose share of the roofline cannot be, with the share: a rate of this run is too low, or the time wrong."""
        shares = ((row, least_us(row.shape.work, self.rates) / row.median_us) for row in self.rows)
        return [(row, share) for row, share in shares if share > MOST_OF_THE_ROOF]


def row_from(benchmark: Mapping[str, Any]) -> Row:
    """One benchmark of the JSON. Raises RunError where it was not checked or has too few replays."""
    place = str(benchmark.get("fullname", "a benchmark"))
    try:
        info, data = benchmark["extra_info"], benchmark["stats"]["data"]
        row = Row(
            shape=restore(info["shape"]),
            implementation=info["implementation"],
            label=info["label"],
            times_us=tuple(1e6 * float(t) for t in data),
            blocks=tuple(info["blocks"]),
            checked=info.get("checked", ""),
            sm_mhz=info.get("sm_mhz"),
            throttled=tuple(info.get("throttled", ())),
            noted=tuple(info.get("noted", ())),
            top_mhz=info.get("top_mhz"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{place}: not a benchmark of this suite: {type(error).__name__} {error}") from None
    if not row.checked:
        raise RunError(f"{place}: its output was not checked, so its times do not count")
    if len(row.times_us) < LEAST_REPLAYS or len(row.blocks) != len(row.times_us):
        raise RunError(
            f"{place}: {len(row.times_us)} times in {len(row.blocks)} blocks; at least {LEAST_REPLAYS} count"
        )
    if min(row.times_us) <= 0:
        raise RunError(f"{place}: a time of {min(row.times_us):g} us is none")
    return row


def run_from(content: Mapping[str, Any]) -> Run:
    """A run from the content of pytest-benchmark's JSON. Raises RunError."""
    try:
        machine = content["machine_info"]["kernelbench"]
        rates = restore_rates(machine["rates"])
        fingerprint = machine["fingerprint"]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"machine_info.kernelbench: missing or wrong: {type(error).__name__} {error}") from None
    rows = tuple(row_from(one) for one in content["benchmarks"] if "implementation" in one.get("extra_info", {}))
    cells = [(row.shape.key, row.implementation) for row in rows]
    twice = sorted({cell for cell in cells if cells.count(cell) > 1})
    if twice:
        raise RunError(f"timed twice in one run: {twice[0][0]} {twice[0][1]}")
    return Run(
        rows,
        fingerprint,
        rates,
        dict(machine.get("absent", {})),
        dict(machine.get("faults", {})),
        bool(machine.get("quick", False)),
        str(content.get("datetime", "")),
        _commit(content.get("commit_info") or {}),
        dict(machine.get("wrong", {})),
        tuple(machine.get("asked", ())),
        bool(machine.get("partial", False)),
        dict(machine.get("sources", {})),
    )


def _commit(info: Mapping[str, Any]) -> str | None:
    """A copy without its history has no commit: pytest-benchmark then says ``unversioned``."""
    commit = info.get("id")
    return None if not commit or not str(commit).isalnum() or commit == "unversioned" else str(commit)


def load(path: str | Path) -> Run:
    """Read a file that ``--benchmark-json`` wrote. Raises RunError."""
    path = Path(path)
    try:
        return run_from(json.loads(path.read_bytes()))
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except json.JSONDecodeError as error:
        raise RunError(f"{path}: not JSON, line {error.lineno}: {error.msg}") from None
    except RunError as error:
        raise RunError(f"{path}: {error}") from None
