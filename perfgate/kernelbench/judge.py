"""Each shape of a run against its baseline, by the gate's own rules (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.baseline.differences import differences
from perfgate.baseline.model import METRICS, Bounds, MetricBaseline
from perfgate.kernelbench.baseline import KernelFile, KernelPoint, comparable, samples
from perfgate.kernelbench.rows import Row, Run
from perfgate.result import Outcome
from perfgate.verdict.compare import Comparison, compare
from perfgate.verdict.levels import levels

SMALLEST = 0.03
"""A change of a kernel's time by less is not gated: a kernel is some percent of a step, whose own bound is 1.5 %."""

RESOLUTION_US = 0.5
"""What CUDA promises of an event's time (cudaEventElapsedTime): a smaller change of a median cannot be told."""

BETWEEN_RUNS = 0.005
"""Relative standard deviation between runs of unchanged code, assumed until runs of a baseline show it."""


@dataclass(frozen=True)
class Judgement:
    """What one shape came to. ``change`` is time/baseline - 1; None where nothing was compared."""

    key: str
    outcome: Outcome
    why: str
    change: float | None = None


def judge(runs: Sequence[Run], baseline: KernelFile | None) -> list[Judgement]:
    """Every shape of one or more runs of one state, then every recorded shape that these runs lack.

    A quick run answers for the quick share alone. Never raises for what the runs hold.
    """
    points: Mapping[str, KernelPoint] = baseline.points if baseline is not None else {}
    keys = list(dict.fromkeys(key for run in runs for key in run.ours()))
    found = [_one(key, [run.ours()[key] for run in runs if key in run.ours()], runs, points, len(keys)) for key in keys]
    whole = any(not run.quick for run in runs)
    for key, point in points.items():
        if key not in keys and (whole or point.quick):
            why = f"recorded on {point.provenance.recorded_at} with {point.time_us.median:.1f} us, and not in this run"
            found.append(Judgement(key, Outcome.MISSING, why))
    if not found:
        found.append(Judgement("all shapes", Outcome.MISSING, "nothing was measured and nothing is recorded"))
    return found


def _one(
    key: str, rows: Sequence[Row], runs: Sequence[Run], points: Mapping[str, KernelPoint], count: int
) -> Judgement:
    reasons = sorted({reason for row in rows for reason in row.throttled})
    if reasons:
        return Judgement(key, Outcome.INVALID, f"throttled while it was timed: {', '.join(reasons)}")
    point = points.get(key)
    if point is None:
        return Judgement(key, Outcome.NO_BASELINE, "no baseline for this shape on this card")
    for run in runs:
        apart = differences(point.provenance.fingerprint, comparable(run.fingerprint))
        if apart:
            why = f"comparison with the baseline of {point.provenance.recorded_at} refused: {'; '.join(apart)}"
            return Judgement(key, Outcome.NO_BASELINE, why)
    values, starts = [], []
    for number, row in enumerate(rows):
        own = samples(row)
        values += [us / 1e3 for us in own]
        starts += [number] * len(own)
    one = compare(
        METRICS["step_time"], values, starts, _base(point), bounds(point), levels(len(values), comparisons=count)
    )
    return Judgement(key, one.outcome, explain(one), one.change)


def bounds(point: KernelPoint) -> Bounds:
    """The change that matters for a shape: a share of its time, but no less than the timer's resolution."""
    least_ms = max(SMALLEST * point.time_us.median, RESOLUTION_US) / 1e3
    return Bounds(absolute={"step_time": least_ms}, between_start=BETWEEN_RUNS)


def _base(point: KernelPoint) -> MetricBaseline:
    stored = point.time_us
    return MetricBaseline(
        samples=tuple(s.value / 1e3 for s in stored.samples),
        starts=tuple(s.server_start for s in stored.samples),
        median=stored.median / 1e3,
        spread=stored.spread / 1e3,
    )


def explain(one: Comparison) -> str:
    """A comparison in one line, in microseconds, in whichever direction it went."""
    span = (
        f"{one.value * 1e3:.2f} us, {one.change:+.1%} against {one.baseline * 1e3:.2f} "
        f"(95 % interval {one.change_low:+.1%} to {one.change_high:+.1%})"
    )
    size, noise = math.expm1(one.bound), math.expm1(one.noise)
    words = {
        Outcome.REGRESSION: f"slower by more than {size:.1%} and than noise ({noise:.1%})",
        Outcome.IMPROVED: f"faster by more than {size:.1%} and than noise ({noise:.1%})",
        Outcome.PASS: f"a loss of {math.expm1(one.question):.1%} is excluded",
    }
    return f"{span}: {words.get(one.outcome, f'a loss of {size:.1%} is neither shown nor excluded: measure again')}"


def render(found: Sequence[Judgement]) -> str:
    """All judgements, those that fail first, with what to do about them."""
    rows = sorted(found, key=lambda j: (j.outcome.passes, j.key))
    lines = [f"{j.outcome:12} {j.key}: {j.why}" for j in rows]
    counts = {o: sum(j.outcome is o for j in found) for o in Outcome}
    lines.append("; ".join(f"{n} {o}" for o, n in counts.items() if n))
    if counts[Outcome.IMPROVED] or counts[Outcome.NO_BASELINE]:
        lines.append("to record: python -m perfgate kernels record RUN.json --reason TEXT")
    return "\n".join(lines) + "\n"
