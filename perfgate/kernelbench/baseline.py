"""``baselines/kernels/HARDWARE.json``: what our kernels took on one card, where from, and what it replaced."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from perfgate.baseline import BaselineError
from perfgate.baseline.file import parse_as
from perfgate.baseline.schema import Positive, Provenance, StoredMetric
from perfgate.fingerprint import hardware_name
from perfgate.kernelbench.rows import Row, Run
from perfgate.kernelbench.shapes import restore

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

    ``peers``: their medians in the last of those runs. ``quick``: it belongs to the quick share. ``sm_mhz``: the lowest clock
    that one of them was timed at. ``sources``: what the kernel's source files came to (``sources.digests``).
    """

    shape: dict[str, Any]
    quick: bool
    time_us: StoredMetric
    peers: dict[str, Positive] = Field(default_factory=dict)
    sm_mhz: int | None = None
    sources: str | None = None
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


def meant(run: Run, key: str, point: KernelPoint | None) -> bool:
    """Whether a run was to hold this shape: asked for it, or whole of its share and the shape recorded as one of that."""
    if key in run.asked or run.partial or point is None:
        return key in run.asked
    return point.quick or not run.quick
