"""``baselines/kernels/HARDWARE.json``: what our kernels took on one card, where from, and what it replaced."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from perfgate.baseline import BaselineError
from perfgate.baseline.file import parse_as
from perfgate.baseline.record import write_atomically
from perfgate.baseline.schema import REPLACED_KEPT, Positive, Provenance, StoredMetric
from perfgate.fingerprint import hardware_name
from perfgate.kernelbench.bars import MINE, quick_shapes
from perfgate.kernelbench.rows import Row, Run
from perfgate.kernelbench.shapes import describe, restore

GROUP = 5
"""Replays in a row whose median is one sample: single replays are a few steps of the event timer apart, and have tails."""

COMPARED = ("torch", "triton", "cuda")
"""Software that our kernels' times depend on; a peer's version is stored and not compared."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Former(_Part):
    """A former time of a shape, in microseconds, and when and why it gave way."""

    time_us: Positive
    n: int
    recorded_at: str
    commit: str | None = None
    reason: str
    replaced_at: str
    replaced_because: str


class Looser(_Part):
    """Stands while a shape is slower than it once was: its best former median, and why that was accepted."""

    since: str
    reason: str
    time_us: Positive


class KernelPoint(_Part):
    """One shape. ``time_us``: samples of GROUP replays, with the number of the run that each is from.

    ``peers``: their medians in the last of those runs. ``quick``: it belongs to the quick share.
    """

    shape: dict[str, Any]
    quick: bool
    time_us: StoredMetric
    peers: dict[str, Positive] = Field(default_factory=dict)
    sm_mhz: int | None = None
    provenance: Provenance
    replaced: list[Former] = Field(default_factory=list)
    loosened: Looser | None = None


class KernelFile(_Part):
    """``points`` is keyed by the shape's key."""

    schema_version: Literal[1] = 1
    hardware: str
    points: dict[str, KernelPoint]

    @model_validator(mode="after")
    def _keys_are_their_shapes(self) -> Self:
        for key, point in self.points.items():
            if restore(point.shape).key != key:
                raise ValueError(f"point {key!r} holds the shape {restore(point.shape).key!r}: edited by hand?")
        return self


@dataclass(frozen=True)
class Recorded:
    """What a recording did, by the shapes' keys."""

    path: Path
    new: tuple[str, ...]
    tightened: tuple[str, ...]
    loosened: tuple[str, ...]


def path_for(folder: Path, fingerprint: Mapping[str, Any]) -> Path:
    """The file of this card below the folder of baselines."""
    return folder / "kernels" / f"{hardware_name(fingerprint)}.json"


def comparable(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a fingerprint that has to be equal for times to be compared."""
    software = fingerprint.get("software", {})
    return {
        "hardware": dict(fingerprint.get("hardware", {})),
        "software": {name: software[name] for name in COMPARED if name in software},
    }


def load(path: Path) -> KernelFile | None:
    """The file, or None where there is none. Raises BaselineError where it cannot be used."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: cannot be read ({error.strerror or error})") from None
    return parse_as(KernelFile, raw, path)


def samples(row: Row) -> list[float]:
    """Medians of GROUP replays in a row, in microseconds, each within one block."""
    found = []
    for block in sorted(set(row.blocks)):
        own = [t for t, b in zip(row.times_us, row.blocks, strict=True) if b == block]
        whole = len(own) // GROUP * GROUP
        found += [statistics.median(own[i : i + GROUP]) for i in range(0, whole, GROUP)]
    return found


def record(path: Path, runs: Sequence[Run], *, reason: str, recorded_at: str, commit: str | None = None) -> Recorded:
    """Record all shapes of one or more runs of one state; the file's other shapes stay as they are.

    Raises BaselineError where the runs are of different cards or measured nothing, where a run was throttled, where a
    slower time comes without a ``reason``, or where writing fails; the old file then stands untouched.
    """
    if not runs or not any(run.ours() for run in runs):
        raise BaselineError(f"{path}: nothing was measured, so nothing is recorded")
    if any(comparable(run.fingerprint) != comparable(runs[0].fingerprint) for run in runs):
        raise BaselineError(f"{path}: the runs are of different cards or software: record them one by one")
    before = path.read_bytes() if path.exists() else None
    old = parse_as(KernelFile, before, path) if before is not None else None
    hardware = hardware_name(runs[0].fingerprint)
    if old is not None and old.hardware != hardware:
        raise BaselineError(f"{path}: holds {old.hardware}, not {hardware}")
    points = dict(old.points) if old is not None else {}
    done: dict[str, list[str]] = {"new": [], "tightened": [], "loosened": []}
    provenance = Provenance(
        recorded_at=recorded_at, commit=commit, reason=reason.strip(), fingerprint=comparable(runs[0].fingerprint)
    )
    for key in sorted({key for run in runs for key in run.ours()}):
        point, former = _point(path, key, runs, provenance), points.get(key)
        slower = former is not None and point.time_us.median > former.time_us.median
        if former is not None and slower and not provenance.reason:
            raise BaselineError(
                f"{path}: {key} would become looser ({former.time_us.median:g} to {point.time_us.median:g} us): "
                "give the reason with --reason TEXT; it is kept beside the old values"
            )
        points[key] = point if former is None else _succeed(point, former)
        done["new" if former is None else "loosened" if slower else "tightened"].append(key)
    ordered = {key: points[key] for key in sorted(points)}
    write_atomically(path, KernelFile(hardware=hardware, points=ordered), expected=before)
    return Recorded(path, tuple(done["new"]), tuple(done["tightened"]), tuple(done["loosened"]))


def _point(path: Path, key: str, runs: Sequence[Run], provenance: Provenance) -> KernelPoint:
    values: list[float] = []
    starts: list[int] = []
    last: tuple[Row, Run] | None = None
    for number, run in enumerate(runs):
        row = run.ours().get(key)
        if row is None:
            continue
        if row.throttled:
            raise BaselineError(f"{path}: {key} was throttled ({', '.join(row.throttled)}): measure it again")
        own = samples(row)
        values, starts, last = values + own, starts + [number] * len(own), (row, run)
    assert last is not None
    row, run = last
    return KernelPoint(
        shape=describe(row.shape),
        quick=row.shape in quick_shapes(),
        time_us=StoredMetric.of(values, starts),
        peers={r.label: r.median_us for r in run.rows if r.shape == row.shape and r.implementation not in MINE},
        sm_mhz=row.sm_mhz,
        provenance=provenance,
    )


def _succeed(new: KernelPoint, old: KernelPoint) -> KernelPoint:
    """``new`` with the former values of ``old``, and with a mark where it is slower than the best that ever stood."""
    was, now = old.provenance, new.provenance
    former = Former(
        time_us=old.time_us.median,
        n=old.time_us.n,
        recorded_at=was.recorded_at,
        commit=was.commit,
        reason=was.reason,
        replaced_at=now.recorded_at,
        replaced_because=now.reason,
    )
    best = min(old.time_us.median, old.loosened.time_us if old.loosened else old.time_us.median)
    mark = None
    if new.time_us.median > best:
        # A gain that stays short of the best keeps the first reason: that is still why the time is loose.
        kept = old.loosened if old.loosened and new.time_us.median <= old.time_us.median else None
        mark = Looser(
            since=kept.since if kept else now.recorded_at, reason=kept.reason if kept else now.reason, time_us=best
        )
    return new.model_copy(update={"replaced": [*old.replaced, former][-REPLACED_KEPT:], "loosened": mark})
