"""The JSON result of one run: its schema, written by the run and read by the report and by other programs."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = 1


class Outcome(StrEnum):
    """What a point, or a whole run, came to. docs/verdicts.md says what each means and what to do about it."""

    PASS = "PASS"
    IMPROVED = "IMPROVED"
    REGRESSION = "REGRESSION"
    INCONCLUSIVE = "INCONCLUSIVE"
    INVALID = "INVALID"
    MISSING = "MISSING"
    NO_BASELINE = "NO_BASELINE"

    @property
    def passes(self) -> bool:
        """True where the verdict lets a change through."""
        return self in (Outcome.PASS, Outcome.IMPROVED)


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MetricResult(_Row):
    """One metric of one point. ``change`` is value/baseline - 1; the interval is at the level named in the run."""

    name: Literal["throughput", "step_time"]
    unit: Literal["tok/s", "ms"]
    higher_is_better: bool
    value: float | None = None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    baseline: float | None = None
    target: float | None = None
    change: float | None = None
    outcome: Outcome
    why: str = ""


class SampleRow(_Row):
    """One sample as stored: the figures that were judged, and why it did not count where it did not.

    Of several GPUs: the lowest clocks (MHz), the highest of their median powers (W) and temperatures (°C).
    """

    index: int
    server_start: int = 0
    started_at: float | None = None
    seconds: float | None = None
    asked: int
    completed: int | None = None
    throughput: float | None = None
    step_ms: float | None = None
    mean_tpot_ms: float | None = None
    ttft_ms: float | None = None
    accept_length: float | None = None
    clock_mhz: int | None = None
    clock_low_mhz: int | None = None
    clock_readings: int | None = None
    clock_drift: float | None = None
    power_w: float | None = None
    hottest_c: int | None = None
    throttle: list[str] = Field(default_factory=list)
    counted: bool
    problems: list[str] = Field(default_factory=list)


class PointResult(_Row):
    """One concurrency of one recipe."""

    concurrency: int
    outcome: Outcome
    why: str
    cause: str = "NONE"
    evidence: list[str] = Field(default_factory=list)
    advice: str = ""
    metrics: list[MetricResult] = Field(default_factory=list)
    samples: list[SampleRow] = Field(default_factory=list)


class CheckResult(_Row):
    """Something checked once a run beside the points: start-up time, KV capacity, graph coverage, scaling, targets."""

    name: str
    outcome: Outcome
    value: float | None = None
    bound: float | None = None
    unit: str = ""
    why: str = ""
    evidence: list[str] = Field(default_factory=list)
    advice: str = ""


class RunResult(_Row):
    """One whole run. ``extra`` holds the parts that only some runs have, each under its own name."""

    schema_version: Literal[1] = 1
    recipe: str
    description: str = ""
    outcome: Outcome
    why: str
    judged_by: Literal["baseline", "smoke", "ab", "recording", "nothing"]
    started_at: float
    seconds: float
    server_seconds: float = 0.0
    client_seconds: float = 0.0
    overhead_share: float | None = None
    command: list[str] = Field(default_factory=list)
    commit: str | None = None
    fingerprint: dict[str, Any] = Field(default_factory=dict)
    fingerprint_differences: list[str] = Field(default_factory=list)
    baseline_file: str | None = None
    interval_level: float = 0.95
    points: list[PointResult]
    not_run: list[str] = Field(default_factory=list)
    checks: list[CheckResult] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict)
