"""Reading a baseline file: every way in which it can be wrong is one error that names the file and what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from perfgate.baseline.model import METRICS, Baseline, Bounds, MetricBaseline, MetricName
from perfgate.baseline.schema import SCHEMA_VERSION, StoredFile, StoredPoint

MEND = "restore it from version control (git checkout -- FILE) or record it anew (--record --reason TEXT)"


class BaselineError(ValueError):
    """A baseline file that cannot be used, with the file, the key or line, and what to do."""


class BaselineMissing(BaselineError):
    """There is no baseline file for this recipe on this hardware."""


@dataclass(frozen=True)
class BaselineFile:
    """A baseline file as read. ``stored`` is its validated JSON."""

    path: Path
    stored: StoredFile

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """The points that it has, ascending."""
        return tuple(sorted(int(key) for key in self.stored.points))

    def stored_point(self, concurrency: int) -> StoredPoint | None:
        """The point's record with its history and former values, or None where it has none."""
        return self.stored.points.get(str(concurrency))

    def point(self, concurrency: int, bounds: Bounds | None = None) -> Baseline | None:
        """The point's baseline under the recipe's ``bounds`` (None: the defaults), or None where it has none."""
        point = self.stored_point(concurrency)
        if point is None:
            return None
        metrics: dict[MetricName, MetricBaseline] = {}
        names: tuple[MetricName, ...] = ("throughput", "step_time")
        for name in names:
            metric = getattr(point.metrics, name)
            if metric is not None:
                metrics[name] = MetricBaseline(
                    samples=tuple(s.value for s in metric.samples),
                    starts=tuple(s.server_start for s in metric.samples),
                    median=metric.median,
                    spread=metric.spread,
                )
        return Baseline(
            concurrency,
            metrics,
            bounds=bounds or Bounds(),
            accept_length=point.accept_length,
            fingerprint=point.provenance.fingerprint,
            recorded_at=point.provenance.recorded_at,
            commit=point.provenance.commit,
            reason=point.provenance.reason,
            loosened=describe_loosened(point),
        )

    def loosened(self) -> Mapping[int, str]:
        """Points that hold a looser value than they once had, with a line about each for every report."""
        notes = {c: describe_loosened(self.stored.points[str(c)]) for c in self.concurrencies}
        return {c: note for c, note in notes.items() if note}


def describe_loosened(point: StoredPoint) -> str:
    """One line about a standing looser value, or nothing."""
    mark = point.loosened
    return "" if mark is None else f"looser since {mark.since} than its best of {best(point)}: {mark.reason}"


def best(point: StoredPoint) -> str:
    """What a point with a mark once had: the medians, or where those of now are no worse, the closest floors."""
    mark, now = point.loosened, point.metrics
    assert mark is not None
    step = now.step_time.median if now.step_time else math.inf
    if now.throughput.median < mark.throughput or (mark.step_time is not None and step > mark.step_time):
        return f"{mark.throughput:g} tok/s" + (f", {mark.step_time:g} ms" if mark.step_time else "")
    pairs = [f"{value:.5g} {METRICS[name].unit}" for name, value in mark.floors.items()]  # type: ignore[index]
    return f"{', '.join(pairs)} as floors"


def load(path: str | Path) -> BaselineFile:
    """Read ``baselines/RECIPE/HARDWARE.json``.

    Raises BaselineMissing where there is no such file and BaselineError where it cannot be read, is cut off, is of
    another schema version, or has a key of the wrong type or value.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise BaselineMissing(
            f"{path}: no such baseline; record this machine with --record --reason TEXT, "
            "or compare with --against RECIPE"
        ) from None
    except OSError as error:
        raise BaselineError(
            f"{path}: cannot be read ({error.strerror or error}); check the path and its rights"
        ) from None
    return BaselineFile(path, parse(raw, path))


Stored = TypeVar("Stored", bound=BaseModel)


def parse(raw: bytes, path: Path) -> StoredFile:
    """The validated content of a baseline file; ``path`` is for the error messages alone."""
    return parse_as(StoredFile, raw, path)


def parse_as(kind: type[Stored], raw: bytes, path: Path) -> Stored:
    """The content of a file with a ``schema_version``, validated as ``kind``. Raises BaselineError."""
    try:
        content = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_twins)
    except UnicodeDecodeError as error:
        raise BaselineError(f"{path}: byte {error.start} is not UTF-8 text; {MEND}") from None
    except json.JSONDecodeError as error:
        whole = "empty" if not raw.strip() else "not whole JSON (cut off while it was written or copied?)"
        raise BaselineError(
            f"{path}: line {error.lineno}, column {error.colno}: {whole}: {error.msg}; {MEND}"
        ) from None
    except RecursionError:
        raise BaselineError(f"{path}: nested too deeply to be a baseline; {MEND}") from None
    except ValueError as error:
        raise BaselineError(f"{path}: {error}; {MEND}") from None
    if not isinstance(content, dict):
        raise BaselineError(f"{path}: holds a JSON {type(content).__name__}, not an object; {MEND}")
    version = content.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise BaselineError(
            f"{path}: schema_version is {version!r} and this perfgate reads {SCHEMA_VERSION}: "
            "use the perfgate that wrote it, or record it anew (--record --reason TEXT)"
        )
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "(file)"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise BaselineError(f"{path}: key {key}: {first['msg']}, got {_short(first['input'])}{more}; {MEND}") from None


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python's parser keeps the last of two equal keys: a merge gone wrong would then pick a floor by accident.
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"key {key!r} stands twice in one object")
        seen[key] = value
    return seen


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
