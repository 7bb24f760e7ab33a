"""How far a run's server starts lie apart, in words (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from perfgate.result import PointResult
from perfgate.stats import median


def notes(points: Sequence[PointResult]) -> list[str]:
    """A note for each point whose samples come from several starts: the median step time (ms) of each, how far these lie
    apart, and the widest that one start's own samples do. Both are (largest - smallest) / median."""
    return [note for point in points if (note := _note(point)) is not None]


def _note(point: PointResult) -> str | None:
    steps: dict[int, list[float]] = defaultdict(list)
    for sample in point.samples:
        if sample.counted and sample.step_ms is not None:
            steps[sample.server_start].append(sample.step_ms)
    if len(steps) < 2:
        return None
    medians = [median(values) for _, values in sorted(steps.items())]
    shown = ", ".join(f"{value:.4g}" for value in medians)
    within = max(_range(values) for values in steps.values())
    return (
        f"C={point.concurrency}: step time by server start {shown} ms: {_range(medians):.1%} apart; the samples of one start "
        f"{within:.1%} at most"
    )


def _range(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / median(values)
