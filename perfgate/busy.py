"""How long a replayed decode step keeps the GPU busy, from a trace: what the step takes beyond that is the host's (pure).

A trace is torch.profiler's, with GPU events. All kernels of one graph launch carry its correlation number; kernels that were
launched one by one have one each, so a group is a replay and the rest is not.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LEAST_KERNELS = 10
"""Of a group that is taken for a replayed step; a model's layer alone has more."""


@dataclass(frozen=True)
class BusyStep:
    """Medians over ``steps`` replays: milliseconds in which a kernel ran, from first begin to last end, and kernels."""

    steps: int
    busy_ms: float
    span_ms: float
    kernels: int

    @property
    def note(self) -> str:
        """What the report says of it."""
        return (
            f"a replayed decode step of one request keeps the GPU busy for {self.busy_ms:.3g} ms ({self.kernels} kernels "
            f"within {self.span_ms:.3g} ms, median of {self.steps} traced steps); what the step time at C=1 has beyond that "
            "is the host's"
        )


def launches(trace: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """The kernels of each graph launch, as the trace has them: events with a ``name`` and numbers ``ts`` and ``dur`` in us."""
    groups: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in trace.get("traceEvents", []):
        if not isinstance(event, Mapping) or str(event.get("cat", "")).lower() != "kernel":
            continue
        number = (event.get("args") or {}).get("correlation")
        if number and all(isinstance(event.get(name), int | float) for name in ("ts", "dur")):  # 0 is no launch's
            groups[number].append(event)
    return [kernels for kernels in groups.values() if len(kernels) >= LEAST_KERNELS]


def of(trace: Mapping[str, Any] | None) -> BusyStep | None:
    """The replayed steps of a trace, or None where it shows none."""
    steps = [[(float(e["ts"]), float(e["ts"] + e["dur"])) for e in kernels] for kernels in launches(trace or {})]
    if not steps:
        return None
    return BusyStep(
        len(steps),
        statistics.median(_covered(spans) for spans in steps) / 1e3,
        statistics.median(max(e for _, e in spans) - min(b for b, _ in spans) for spans in steps) / 1e3,
        int(statistics.median(map(len, steps))),
    )


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: kernels on two streams at once count once."""
    total, end = 0.0, float("-inf")
    for begin, finish in sorted(spans):
        total += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return total
