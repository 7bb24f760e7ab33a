"""What a point is judged against, as frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from perfgate.workload import Sample

MetricName = Literal["throughput", "step_time"]

MAX_RELATIVE = 0.015
"""No recipe may call a drop of more than this share of the baseline too small to matter."""


@dataclass(frozen=True)
class Metric:
    """A gated figure of a sample. ``sign`` is +1 where more is better."""

    name: MetricName
    unit: Literal["tok/s", "ms"]
    sign: int

    def of(self, sample: Sample) -> float | None:
        """The figure, or None where the client's version does not report it."""
        return sample.output_throughput if self.name == "throughput" else sample.step_ms


METRICS: Mapping[MetricName, Metric] = MappingProxyType(
    {"throughput": Metric("throughput", "tok/s", 1), "step_time": Metric("step_time", "ms", -1)}
)


@dataclass(frozen=True)
class Bounds:
    """What counts as a drop, from the recipe.

    ``relative``: share of the baseline, at most 0.015. ``least``: a drop below this share is never a regression,
    however quiet the machine; between the two the floor follows the baseline's own noise. ``absolute``: by metric, in
    its unit, for machines whose noise makes a share meaningless; the larger of the two bounds holds, but in an A/B, whose
    pairs cancel that noise, the relative one alone. ``between_start``: relative standard deviation between launches of
    the same server, used until baselines of several starts show it. Its default suits a server whose launches agree to
    0.1 %; a recipe should state what was measured on its machine.
    ``unstated``: where no recipe states it, what an alarm allows launches of the same server to differ by as long as
    neither side has several to show it; 0 where one does.
    """

    relative: float = MAX_RELATIVE
    least: float = 0.0025
    absolute: Mapping[str, float] = field(default_factory=dict)
    between_start: float = 0.0005
    unstated: float = 0.0

    @property
    def allowed(self) -> float:
        """Relative standard deviation between launches that an alarm allows for while none shows it."""
        return max(self.between_start, self.unstated)

    @property
    def expected(self) -> float | None:
        """Between-start spread before any is seen, for sides with several starts, where no recipe states one."""
        return self.unstated / math.sqrt(2) if self.unstated else None

    def __post_init__(self) -> None:
        if not 0 < self.relative <= MAX_RELATIVE:
            raise ValueError(f"relative bound must be above 0 and at most {MAX_RELATIVE}, got {self.relative}")
        if not 0 <= self.least <= self.relative:
            raise ValueError(f"least bound must be from 0 to the relative bound {self.relative}, got {self.least}")
        if not 0 <= self.between_start < 1:
            raise ValueError(f"between-start spread is a share from 0 to 1, got {self.between_start}")
        for name, value in self.absolute.items():
            if name not in METRICS:
                raise ValueError(f"absolute bound for {name!r}: the metrics are {', '.join(METRICS)}")
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"absolute bound for {name} must be a finite number of at least 0, got {value}")


@dataclass(frozen=True)
class MetricBaseline:
    """One metric of a recorded point: its samples in the metric's unit, and the server start each was taken on."""

    samples: tuple[float, ...]
    starts: tuple[int, ...]
    median: float
    spread: float

    def __post_init__(self) -> None:
        if not self.samples or len(self.samples) != len(self.starts):
            raise ValueError(f"{len(self.samples)} samples with {len(self.starts)} start numbers: one each is needed")


@dataclass(frozen=True)
class Baseline:
    """One concurrency's baseline. With ``floors`` and no ``metrics`` it is a smoke floor, which holds on any machine.

    ``floors`` are fixed by the recipe: the least throughput (tok/s) or the most step time (ms) that passes.
    """

    concurrency: int
    metrics: Mapping[MetricName, MetricBaseline] = field(default_factory=dict)
    floors: Mapping[MetricName, float] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    accept_length: float | None = None
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    recorded_at: str = ""
    commit: str | None = None
    reason: str = ""
    loosened: str = ""

    def __post_init__(self) -> None:
        if not self.metrics and not self.floors:
            raise ValueError(f"a baseline for C={self.concurrency} needs recorded metrics or a smoke floor")

    @property
    def is_smoke(self) -> bool:
        """True where only the recipe's fixed floors judge."""
        return not self.metrics


def smoke(concurrency: int, throughput_floor: float | None = None, step_time_ceiling: float | None = None) -> Baseline:
    """The baseline that a recipe's ``smoke`` floor makes: tok/s at least, ms at most; at least one of them."""
    floors: dict[MetricName, float] = {}
    if throughput_floor is not None:
        floors["throughput"] = throughput_floor
    if step_time_ceiling is not None:
        floors["step_time"] = step_time_ceiling
    for name, value in floors.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"smoke floor for {name} at C={concurrency} must be finite and above 0, got {value}")
    return Baseline(concurrency, floors=floors, reason="smoke floor of the recipe")
