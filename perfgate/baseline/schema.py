"""The JSON of ``baselines/RECIPE/HARDWARE.json``."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perfgate.stats import median, robust_spread

SCHEMA_VERSION = 1
HISTORY_KEPT = 200
REPLACED_KEPT = 20

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StoredSample(_Part):
    """One accepted sample of one metric, in the metric's unit."""

    value: Positive
    server_start: int = 0


class StoredMetric(_Part):
    """``spread`` is the MAD scaled to a standard deviation, in the metric's unit."""

    median: Positive
    spread: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    n: Annotated[int, Field(ge=1)]
    samples: list[StoredSample]

    @model_validator(mode="after")
    def _agrees_with_its_samples(self) -> Self:
        # A floor moved by hand would otherwise gate silently: the figures have to follow from the samples.
        values = [s.value for s in self.samples]
        if len(values) != self.n:
            raise ValueError(f"n is {self.n} but there are {len(values)} samples")
        for name, stated, counted in (
            ("median", self.median, median(values)),
            ("spread", self.spread, robust_spread(values)),
        ):
            if not math.isclose(stated, counted, rel_tol=1e-6, abs_tol=1e-9):
                raise ValueError(f"{name} is {stated:g} but the samples give {counted:g}: edited by hand?")
        return self

    @classmethod
    def of(cls, values: list[float], starts: list[int]) -> StoredMetric:
        samples = [StoredSample(value=v, server_start=s) for v, s in zip(values, starts, strict=True)]
        return cls(median=median(values), spread=robust_spread(values), n=len(values), samples=samples)


class StoredMetrics(_Part):
    throughput: StoredMetric
    step_time: StoredMetric | None = None


class Provenance(_Part):
    """Where, with what and why a point was recorded. ``recorded_at`` is an ISO 8601 date or time; ``graph_gib`` is what
    the captured graphs took, in GiB, where there were any."""

    recorded_at: str
    commit: str | None = None
    reason: str
    sglang_version: str | None = None
    server_arguments: dict[str, Any] = Field(default_factory=dict)
    fingerprint: dict[str, Any] = Field(default_factory=dict)
    graph_gib: Positive | None = None


class Replaced(_Part):
    """Former values of a point, with their provenance, and when and why they gave way."""

    throughput: Positive
    step_time: Positive | None = None
    n: int
    recorded_at: str
    commit: str | None = None
    reason: str
    replaced_at: str
    replaced_because: str
    changed_fingerprint: list[str] = Field(default_factory=list)


class Loosened(_Part):
    """Stands while a point holds a worse value, or a looser floor, than it once had: the best former medians, and why that
    was accepted. ``floors`` are the closest former ones by metric (tok/s, ms), under the default bounds; empty in files from
    before they were kept."""

    since: str
    reason: str
    throughput: Positive
    step_time: Positive | None = None
    floors: dict[str, Positive] = Field(default_factory=dict)


class HistoryEntry(_Part):
    """The medians of one judged run."""

    date: str
    commit: str | None = None
    throughput: Positive
    step_time: Positive | None = None
    outcome: str = ""


class StoredShares(_Part):
    """Where the time of this point went when it was recorded, 0 to 1: GPU time by kernels, or CPU time by operators."""

    device: Literal["GPU", "CPU"]
    by_category: dict[str, Annotated[float, Field(ge=0, le=1)]]
    tensor_cores: Annotated[float, Field(ge=0, le=1)] | None = None


class StoredPoint(_Part):
    metrics: StoredMetrics
    accept_length: Positive | None = None
    provenance: Provenance
    replaced: list[Replaced] = Field(default_factory=list)
    loosened: Loosened | None = None
    history: list[HistoryEntry] = Field(default_factory=list)
    profile: StoredShares | None = None


class StoredFile(_Part):
    """``points`` is keyed by concurrency, written as a string because JSON has no other keys."""

    schema_version: Literal[1] = 1
    recipe: str
    hardware: str
    points: dict[str, StoredPoint]

    @field_validator("points")
    @classmethod
    def _keys_are_concurrencies(cls, points: dict[str, StoredPoint]) -> dict[str, StoredPoint]:
        for key in points:
            if not (key.isascii() and key.isdigit() and key == str(int(key)) and int(key) > 0):
                raise ValueError(f"key {key!r} is not a concurrency (a whole number of at least 1)")
        return points
