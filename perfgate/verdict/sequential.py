"""Whether to take another sample of a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from perfgate.baseline.model import Baseline
from perfgate.result import Outcome
from perfgate.verdict.point import judge
from perfgate.workload import Sample


def next_step(
    samples: Sequence[Sample], baseline: Baseline | None, minimum: int, maximum: int, **options: Any
) -> Literal["stop", "more"]:
    """``stop`` as soon as the answer is clear at the stricter level of an early look, or at ``maximum`` samples.

    ``options`` go to ``judge``. While recording, or where nothing is there to compare with, a clear answer cannot
    come: recording goes on to the maximum (its samples are the next baseline), the other stops at the minimum.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"1 <= minimum <= maximum is needed, got minimum {minimum}, maximum {maximum}")
    if len(samples) < minimum:
        return "more"
    if len(samples) >= maximum:
        return "stop"
    if options.get("recording"):
        return "more"
    verdict = judge(samples, baseline, min_samples=minimum, max_samples=maximum, **options)
    return "more" if verdict.outcome is Outcome.INCONCLUSIVE else "stop"
