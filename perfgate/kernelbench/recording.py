"""Runs become the baseline of their card: what may, and what is kept of what it replaces (edge: it writes the file)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.baseline import BaselineError
from perfgate.baseline.file import parse_as
from perfgate.baseline.record import write_atomically
from perfgate.baseline.schema import REPLACED_KEPT, Provenance, StoredMetric
from perfgate.fingerprint import hardware_name
from perfgate.kernelbench import clocks
from perfgate.kernelbench.bars import MINE, quick_shapes
from perfgate.kernelbench.baseline import Former, KernelFile, KernelPoint, Looser, comparable, meant, samples
from perfgate.kernelbench.rows import Row, Run
from perfgate.kernelbench.shapes import describe, kernel_of


@dataclass(frozen=True)
class Recorded:
    """What a recording did, by the shapes' keys."""

    path: Path
    new: tuple[str, ...]
    tightened: tuple[str, ...]
    loosened: tuple[str, ...]


def record(
    path: Path,
    runs: Sequence[Run],
    *,
    reason: str,
    recorded_at: str,
    commit: str | None = None,
    clock_mhz: int | None = None,
) -> Recorded:
    """Record all shapes of one or more runs of one state; the file's other shapes stay as they are.

    ``clock_mhz``: what the SM clock was held at, by default the card's highest. Raises BaselineError where the runs are of
    different cards, sources or software, measured nothing, or lack a shape that they were to measure, where an output was
    wrong, where a run was throttled or at another clock, where a slower time comes without a ``reason``, or where writing
    fails; the old file then stands untouched.
    """
    _refuse(path, runs)
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
        former = points.get(key)
        point = _point(path, key, runs, provenance, former, clock_mhz)
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


def _refuse(path: Path, runs: Sequence[Run]) -> None:
    """Raise BaselineError for what the runs as a whole are."""
    if not runs or not any(run.ours() for run in runs):
        raise BaselineError(f"{path}: nothing was measured, so nothing is recorded")
    if any(comparable(run.fingerprint) != comparable(runs[0].fingerprint) for run in runs):
        raise BaselineError(f"{path}: the runs are of different cards or software: record them one by one")
    if any(run.sources != runs[0].sources for run in runs):
        raise BaselineError(f"{path}: the runs are of different kernel sources: record them one by one")
    wrong = {key: why for run in runs for key, why in run.wrong.items()}
    if wrong:
        raise BaselineError(f"{path}: {'; '.join(f'{key}: {why}' for key, why in wrong.items())}: nothing is recorded")


def _point(
    path: Path,
    key: str,
    runs: Sequence[Run],
    provenance: Provenance,
    former: KernelPoint | None,
    clock_mhz: int | None,
) -> KernelPoint:
    values: list[float] = []
    starts: list[int] = []
    held: list[tuple[Row, Run]] = []
    for number, run in enumerate(runs):
        row = run.ours().get(key)
        if row is None:
            if meant(run, key, former):
                raise BaselineError(
                    f"{path}: {key} is not in run {number + 1}, which was to measure it: measure it again"
                )
            continue
        wanted = clock_mhz or clocks.highest(row, run.fingerprint)
        words = "and the clock stated is" if clock_mhz else "and the card's highest is"
        if why := clocks.fault(row, wanted, words):
            raise BaselineError(f"{path}: {key}: {why}: measure it again, or state a clock that is held (--clock MHZ)")
        if wanted is None:
            raise BaselineError(
                f"{path}: {key}: the card's highest clock is not known: state the one held (--clock MHZ)"
            )
        own = samples(row)
        values, starts, held = values + own, starts + [number] * len(own), [*held, (row, run)]
    row, run = held[-1]
    return KernelPoint(
        shape=describe(row.shape),
        quick=row.shape in quick_shapes(),
        time_us=StoredMetric.of(values, starts),
        peers={r.label: r.median_us for r in run.rows if r.shape == row.shape and r.implementation not in MINE},
        sm_mhz=min(mhz for one, _ in held if (mhz := one.sm_mhz) is not None),
        sources=run.sources.get(kernel_of(row.shape)),
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
