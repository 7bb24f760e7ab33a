"""A point without a recorded baseline: judged by the recipe's smoke floor alone, or by nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.baseline.model import METRICS, Baseline
from perfgate.result import MetricResult, Outcome
from perfgate.verdict.model import Verdict
from perfgate.verdict.rows import plain_row
from perfgate.workload import Sample

WORST_FIRST = (Outcome.REGRESSION, Outcome.INVALID, Outcome.INCONCLUSIVE, Outcome.PASS)


def uncompared(
    at: int | None, samples: Sequence[Sample], recording: bool, why: str, targets: Mapping[str, float] | None
) -> Verdict:
    rows = tuple(plain_row(name, samples, Outcome.NO_BASELINE, "nothing to compare with", targets) for name in METRICS)
    advice = (
        "record this machine with --record --reason TEXT after an A/B against the old state "
        "(--against RECIPE or --against-commit REV), which needs no baseline"
    )
    return Verdict(
        at,
        Outcome.NO_BASELINE,
        why,
        rows,
        advice="" if recording else advice,
        judged_by="recording" if recording else "nothing",
        recording=recording,
    )


def judge_smoke(
    at: int | None,
    samples: Sequence[Sample],
    baseline: Baseline,
    recording: bool,
    targets: Mapping[str, float] | None,
) -> Verdict:
    rows: list[MetricResult] = []
    for name, metric in METRICS.items():
        floor = baseline.floors.get(name)
        if floor is None:
            rows.append(plain_row(name, samples, Outcome.PASS, "shown; the smoke floor does not bound it", targets))
            continue
        values = [metric.of(s) for s in samples]
        good = [v is not None and metric.sign * (v - floor) >= 0 for v in values]
        if None in values:
            outcome, why = Outcome.INVALID, f"samples without {name}, which the smoke floor bounds"
        elif all(good):
            outcome, why = Outcome.PASS, "every sample keeps the smoke floor"
        elif any(good):
            outcome, why = Outcome.INCONCLUSIVE, f"{good.count(False)} of {len(good)} samples miss the smoke floor"
        else:
            outcome, why = Outcome.REGRESSION, "every sample misses the smoke floor"
        rows.append(plain_row(name, samples, outcome, why, targets, floor))
    outcome = next(o for o in WORST_FIRST if o in [r.outcome for r in rows])
    bounded = [r for r in rows if r.floor is not None]
    figures = ", ".join(f"{r.value:.4g} {r.unit} (floor {r.floor:g})" for r in bounded if r.value is not None)
    return Verdict(
        at,
        outcome,
        f"only the smoke floor judged it: {figures or bounded[0].why}",
        tuple(rows),
        advice="record this machine for a real verdict: --record --reason TEXT",
        judged_by="smoke",
        recording=recording,
    )
