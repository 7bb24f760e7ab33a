"""Why samples cannot be judged, or not compared with a baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.baseline.model import Baseline
from perfgate.result import Outcome
from perfgate.stats import median
from perfgate.workload import Sample

ACCEPT_TOLERANCE = 0.03
"""Largest relative difference of accept lengths at which two speculative runs did the same work."""

ACCEPT_ADVICE = (
    "compare runs whose prompts and draft model accept alike, or record a new baseline with the reason; "
    "a fall of the accept length itself is a matter of the draft model, not of step time"
)


def unusable(
    samples: Sequence[Sample], baseline: Baseline | None, at: int | None, problems: Sequence[str]
) -> tuple[Outcome, str] | None:
    if not samples:
        return Outcome.MISSING, "no sample was measured"
    failed = [s.exit_code for s in samples if s.exit_code != 0]
    if len(failed) == len(samples):
        codes = sorted(set(failed))
        return Outcome.MISSING, f"every client run failed (exit code {', '.join(map(str, codes))})"
    empty = [s for s in samples if s.completed <= 0]
    if len(empty) + len(failed) >= len(samples):
        return Outcome.MISSING, "no client run completed a request"
    if failed or empty:
        return Outcome.INVALID, (
            f"{len(failed)} of {len(samples)} client runs failed and {len(empty)} completed nothing: "
            "a verdict needs valid samples alone"
        )
    if problems:
        return Outcome.INVALID, "; ".join(problems)
    for sample in samples:
        figures = {"throughput": sample.output_throughput, "step time": sample.step_ms}
        for name, value in figures.items():
            if value is not None and not (math.isfinite(value) and value > 0):
                return Outcome.INVALID, f"a sample reports a {name} of {value:g}"
        if sample.max_concurrency is not None and at is not None and sample.max_concurrency != at:
            return Outcome.INVALID, f"a sample was taken at C={sample.max_concurrency}, the point is C={at}"
    if baseline is not None and at is not None and baseline.concurrency != at:
        return Outcome.INVALID, f"the baseline is of C={baseline.concurrency}, the point is C={at}"
    return None


def accept_refusal(samples: Sequence[Sample], baseline: Baseline) -> str:
    lengths = [s.accept_length for s in samples if s.accept_length]
    if baseline.accept_length is None:
        return f"speculation is on (accept length {median(lengths):.2f}) and was off in the baseline"
    if len(lengths) < len(samples):
        return f"the baseline has an accept length of {baseline.accept_length:.2f} and the samples have none"
    now = median(lengths)
    apart = abs(now / baseline.accept_length - 1)
    if apart <= ACCEPT_TOLERANCE:
        return ""
    return (
        f"accept length {now:.2f} against {baseline.accept_length:.2f} in the baseline ({apart:.1%} apart, "
        f"at most {ACCEPT_TOLERANCE:.0%}): the two did not do the same work, comparison refused"
    )
