"""A point's part of the result: its verdict, or why there is none, with all of its samples (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.campaign import PointData
from perfgate.redact import redact_text
from perfgate.result import Outcome, PointResult, SampleRow
from perfgate.sampler import Taken
from perfgate.validity import Problem
from perfgate.verdict import Verdict
from perfgate.workload import Sample
from perfgate.yardstick import Yardstick


def point_result(
    data: PointData, yardstick: Yardstick, others: Mapping[int, Sequence[Sample]] | None = None
) -> PointResult:
    """One point's verdict with all of its attempts, thrown-away ones too. ``others``: the run's samples by point."""
    rows = sample_rows(data.attempts)
    concurrency = data.plan.concurrency
    if (spoilt := unmeasured(data, rows)) is not None:
        return spoilt
    return judged(yardstick.judge(concurrency, data.samples, others=others), concurrency, rows)


def unmeasured(data: PointData, rows: list[SampleRow]) -> PointResult | None:
    """The verdict on a point without samples that count (MISSING or INVALID), or None where there are some."""
    concurrency = data.plan.concurrency
    if data.failure is not None:
        failure = data.failure
        return PointResult(
            concurrency=concurrency,
            outcome=Outcome.MISSING,
            why=redact_text(failure.message),
            cause=failure.cause,
            evidence=[redact_text(line) for line in failure.evidence],
            advice=failure.advice,
            samples=rows,
        )
    if data.condemned:
        return PointResult(
            concurrency=concurrency,
            outcome=Outcome.INVALID,
            why=redact_text("; ".join(dict.fromkeys(str(p) for p in data.condemned))),
            evidence=_evidence(data.condemned),
            advice="mend what the evidence shows and measure again; docs/verdicts.md explains each kind",
            samples=rows,
        )
    if data.exhausted or not data.samples:
        problems = [p for t in data.thrown_away for p in t.problems if p.invalid]
        reasons = list(dict.fromkeys(str(p) for p in problems))
        reasons += list(dict.fromkeys(t.failure.message for t in data.thrown_away if t.failure is not None))
        said = redact_text("; ".join(reasons))
        return PointResult(
            concurrency=concurrency,
            outcome=Outcome.INVALID,
            why=f"{len(data.thrown_away)} samples thrown away, at most {data.max_retakes} may be: {said}",
            evidence=_evidence(problems),
            advice="mend what disturbed the samples and measure again; docs/verdicts.md explains each kind",
            samples=rows,
        )
    return None


def _evidence(problems: Sequence[Problem]) -> list[str]:
    return [redact_text(line) for line in dict.fromkeys(line for p in problems for line in p.evidence)][:12]


def judged(verdict: Verdict, concurrency: int, rows: list[SampleRow]) -> PointResult:
    """A point whose samples count, by its verdict."""
    return PointResult(
        concurrency=concurrency,
        outcome=verdict.outcome,
        why=verdict.why,
        advice=verdict.advice,
        metrics=list(verdict.metrics),
        samples=rows,
    )


def sample_rows(attempts: Sequence[Taken]) -> list[SampleRow]:
    """Every attempt at a point, those that were thrown away too, as stored."""
    return [_row(i, taken) for i, taken in enumerate(attempts)]


def _row(index: int, taken: Taken) -> SampleRow:
    sample = taken.sample
    problems = list(dict.fromkeys(str(p) for p in taken.problems))
    if taken.failure is not None:
        problems.append(f"{taken.failure.cause}: {taken.failure.message}")
    return SampleRow(
        index=index,
        server_start=sample.server_start if sample else 0,
        started_at=sample.started_at if sample else None,
        seconds=sample.duration_s if sample else None,
        asked=taken.plan.num_prompts,
        completed=sample.completed if sample else None,
        throughput=sample.output_throughput if sample else None,
        step_ms=sample.step_ms if sample else None,
        mean_tpot_ms=sample.mean_tpot_ms if sample else None,
        ttft_ms=sample.median_ttft_ms if sample else None,
        accept_length=sample.accept_length if sample else None,
        clock_mhz=min(sample.clocks_mhz) if sample and sample.clocks_mhz else None,
        clock_low_mhz=min(sample.lowest_clocks_mhz) if sample and sample.lowest_clocks_mhz else None,
        clock_readings=sample.clock_readings if sample else None,
        clock_drift=sample.clock_drift if sample else None,
        power_w=max(sample.power_w) if sample and sample.power_w else None,
        hottest_c=max(sample.hottest_c) if sample and sample.hottest_c else None,
        throttle=list(sample.throttle_reasons) if sample else [],
        counted=taken.counts,
        problems=[redact_text(text) for text in problems],
    )
