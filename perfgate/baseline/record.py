"""Recording: tightens freely, loosens only with a reason kept beside the old values; written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perfgate.baseline.differences import incomparable
from perfgate.baseline.file import BaselineError, load
from perfgate.baseline.floor import floor_of
from perfgate.baseline.model import METRICS, Bounds
from perfgate.baseline.schema import (
    HISTORY_KEPT,
    REPLACED_KEPT,
    HistoryEntry,
    Loosened,
    Provenance,
    Replaced,
    StoredFile,
    StoredMetric,
    StoredMetrics,
    StoredPoint,
    StoredShares,
)
from perfgate.stats import median
from perfgate.workload import Sample

RECORDED = "recorded"
"""Outcome of the runs in a history that became the baseline."""


@dataclass(frozen=True)
class Recorded:
    """What a recording did, by concurrency: points that are new, tightened, or loosened (with the reason)."""

    path: Path
    new: tuple[int, ...]
    tightened: tuple[int, ...]
    loosened: tuple[int, ...]


def record(
    path: str | Path,
    *,
    recipe: str,
    hardware: str,
    points: Mapping[int, Sequence[Sample]],
    fingerprint: Mapping[str, Any],
    recorded_at: str,
    reason: str = "",
    commit: str | None = None,
    sglang_version: str | None = None,
    server_arguments: Mapping[str, Any] | None = None,
    profiles: Mapping[int, StoredShares] | None = None,
    graph_gib: float | None = None,
) -> Recorded:
    """Record valid samples of some points into ``path``; its other points stay as they are.

    What is replaced is kept, and each recorded point's medians are appended to its short history.

    ``profiles``: where each point's time went, if it was looked at; what an earlier recording saw is not kept, since it is of
    other code. ``server_arguments`` and ``fingerprint`` are stored as given: the caller has taken keys, tokens and paths out.
    Raises BaselineError where a point has no usable sample, where the file belongs to another recipe or hardware,
    where a worse value or a looser floor comes without a ``reason``, or where writing fails; the old file then stands untouched.
    """
    path = Path(path)
    before = path.read_bytes() if path.exists() else None
    old = load(path).stored if before is not None else None
    if old is not None and (old.recipe, old.hardware) != (recipe, hardware):
        raise BaselineError(
            f"{path}: holds {old.recipe} on {old.hardware}, not {recipe} on {hardware}: "
            "record to that recipe's own file"
        )
    provenance = Provenance(
        recorded_at=recorded_at,
        commit=commit,
        reason=reason.strip(),
        sglang_version=sglang_version,
        server_arguments=dict(server_arguments or {}),
        fingerprint=dict(fingerprint),
        graph_gib=graph_gib or None,
    )
    stored = dict(old.points) if old is not None else {}
    done: dict[str, list[int]] = {"new": [], "tightened": [], "loosened": []}
    for concurrency, samples in sorted(points.items()):
        former = stored.get(str(concurrency))
        point = _point(path, concurrency, samples, provenance)
        kind = "new" if former is None else "loosened" if _worse(point.metrics, former.metrics) else "tightened"
        if kind == "loosened" and not provenance.reason:
            raise BaselineError(
                f"{path}: C={concurrency} would become looser ({_describe(former, point)}): "
                "give the reason with --reason TEXT; it is kept beside the old values and shown in every report"
            )
        point = point if former is None else _succeed(point, former, concurrency)
        shares = (profiles or {}).get(concurrency)
        stored[str(concurrency)] = _remember(point).model_copy(update={"profile": shares})
        done[kind].append(concurrency)
    if not points:
        raise BaselineError(f"{path}: nothing was measured, so nothing is recorded")
    ordered = {key: stored[key] for key in sorted(stored, key=int)}
    write_atomically(path, StoredFile(recipe=recipe, hardware=hardware, points=ordered), expected=before)
    return Recorded(path, tuple(done["new"]), tuple(done["tightened"]), tuple(done["loosened"]))


def write_atomically(path: Path, content: BaseModel, expected: bytes | None) -> None:
    """Replace ``path`` by ``content`` in one step, if it still holds ``expected`` (None: if it is not there).

    Raises BaselineError naming the file where the disk is full or read-only, or where somebody else wrote meanwhile.
    """
    data = (content.model_dump_json(indent=1) + "\n").encode()
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".new")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        if (path.read_bytes() if path.exists() else None) != expected:
            raise BaselineError(f"{path}: was changed by somebody else during this recording: record again")
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be written ({error.strerror or error}); the file that was there is untouched. "
            "Free some space or choose another folder with --baselines DIR, then record again"
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _point(path: Path, concurrency: int, samples: Sequence[Sample], provenance: Provenance) -> StoredPoint:
    usable = [s for s in samples if s.exit_code == 0 and s.completed > 0]
    if not usable or len(usable) != len(samples):
        raise BaselineError(
            f"{path}: C={concurrency} has {len(usable)} usable of {len(samples)} samples: only a point whose samples "
            "are all valid can be recorded; measure it again"
        )
    starts = [s.server_start for s in usable]
    steps = [step for step in map(METRICS["step_time"].of, usable) if step is not None]
    accepts = [s.accept_length for s in usable if s.accept_length]
    try:
        return StoredPoint(
            metrics=StoredMetrics(
                throughput=StoredMetric.of([s.output_throughput for s in usable], starts),
                step_time=StoredMetric.of(steps, starts) if len(steps) == len(usable) else None,
            ),
            accept_length=median(accepts) if len(accepts) == len(usable) else None,
            provenance=provenance,
        )
    except ValueError as error:
        raise BaselineError(f"{path}: C={concurrency}: a sample cannot be recorded: {error}") from None


def _floors(metrics: StoredMetrics) -> dict[str, float]:
    """The floor of each metric under the default bounds: it follows the median, but the spread and the samples too."""
    found: dict[str, float] = {}
    for name, metric in METRICS.items():
        stored: StoredMetric | None = getattr(metrics, name)
        if stored is not None:
            found[name] = floor_of(metric, Bounds(), stored.median, stored.spread / stored.median, stored.n)
    return found


def _medians(metrics: StoredMetrics) -> dict[str, float]:
    both = {"throughput": metrics.throughput, "step_time": metrics.step_time}
    return {name: stored.median for name, stored in both.items() if stored is not None}


def _loses(now: Mapping[str, float], then: Mapping[str, float]) -> bool:
    """Whether any figure of ``then`` is gone or worse ``now``."""
    signs = {str(name): metric.sign for name, metric in METRICS.items()}
    return any(name not in now or signs[name] * now[name] < signs[name] * value for name, value in then.items())


def _worse(new: StoredMetrics, old: StoredMetrics) -> bool:
    """Whether ``new`` accepts what ``old`` did not: by its medians, from which PASS excludes a drop, or by its floors."""
    return _loses(_medians(new), _medians(old)) or _loses(_floors(new), _floors(old))


def _better(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The better of two figures by metric, where only one has it that one."""
    signs = {str(name): metric.sign for name, metric in METRICS.items()}
    both = {name: [side[name] for side in (one, other) if name in side] for name in signs}
    return {name: max(values, key=lambda v: signs[name] * v) for name, values in both.items() if values}


def _succeed(new: StoredPoint, old: StoredPoint, concurrency: int) -> StoredPoint:
    """``new`` with the history of ``old``, and with a mark where it is looser than the best that ever stood."""
    was, now = old.metrics, new.provenance
    step = was.step_time.median if was.step_time else None
    replaced = Replaced(
        throughput=was.throughput.median,
        step_time=step,
        n=was.throughput.n,
        recorded_at=old.provenance.recorded_at,
        commit=old.provenance.commit,
        reason=old.provenance.reason,
        replaced_at=now.recorded_at,
        replaced_because=now.reason,
        changed_fingerprint=incomparable(old.provenance.fingerprint, now.fingerprint, concurrency),
    )
    best = old.loosened
    marked = {} if best is None else {"throughput": best.throughput, "step_time": best.step_time}
    medians = _better(_medians(was), {name: value for name, value in marked.items() if value is not None})
    floors = _better(_floors(was), best.floors if best is not None else {})
    mark = None
    if _loses(_medians(new.metrics), medians) or _loses(_floors(new.metrics), floors):
        # An improvement that stays short of the best keeps the first reason: that is still why the value is loose.
        fresh = best is None or _worse(new.metrics, was)
        mark = Loosened(
            since=now.recorded_at if fresh or best is None else best.since,
            reason=now.reason if fresh or best is None else best.reason,
            throughput=medians["throughput"],
            step_time=medians.get("step_time"),
            floors=floors,
        )
    return new.model_copy(
        update={
            "replaced": [*old.replaced, replaced][-REPLACED_KEPT:],
            "loosened": mark,
            "history": old.history[-HISTORY_KEPT:],
        }
    )


def _remember(point: StoredPoint) -> StoredPoint:
    """``point`` with what is recorded as the last of its history."""
    step = point.metrics.step_time
    entry = HistoryEntry(
        date=point.provenance.recorded_at,
        commit=point.provenance.commit,
        throughput=point.metrics.throughput.median,
        step_time=step.median if step else None,
        outcome=RECORDED,
    )
    return point.model_copy(update={"history": [*point.history, entry][-HISTORY_KEPT:]})


def _describe(old: StoredPoint | None, new: StoredPoint) -> str:
    assert old is not None
    parts = [f"{old.metrics.throughput.median:g} to {new.metrics.throughput.median:g} tok/s"]
    if old.metrics.step_time and new.metrics.step_time:
        parts.append(f"{old.metrics.step_time.median:g} to {new.metrics.step_time.median:g} ms a step")
    before, after = _floors(old.metrics), _floors(new.metrics)
    for name, word in (("throughput", "floor"), ("step_time", "ceiling")):
        if name in before and name in after:
            parts.append(f"{word} {before[name]:.5g} to {after[name]:.5g}")
    return ", ".join(parts)


def append_history(path: str | Path, entries: Mapping[int, HistoryEntry]) -> None:
    """Add one run's medians to the short history of each point of ``path`` that has a baseline; floors do not move."""
    path = Path(path)
    before = path.read_bytes() if path.exists() else None
    stored = load(path).stored
    points = dict(stored.points)
    for concurrency, entry in entries.items():
        point = points.get(str(concurrency))
        if point is not None:
            history = [*point.history, entry][-HISTORY_KEPT:]
            points[str(concurrency)] = point.model_copy(update={"history": history})
    write_atomically(path, stored.model_copy(update={"points": points}), expected=before)
