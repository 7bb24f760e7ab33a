"""One point: its samples against its baseline, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfgate.baseline.differences import incomparable
from perfgate.baseline.model import METRICS, Baseline
from perfgate.result import Outcome
from perfgate.stats import NOTHING, Observed
from perfgate.verdict.compare import Comparison, compare
from perfgate.verdict.levels import COMPARISONS, levels
from perfgate.verdict.model import Verdict
from perfgate.verdict.needed import needed
from perfgate.verdict.refusals import ACCEPT_ADVICE, accept_refusal, unusable
from perfgate.verdict.rows import compared_row, plain_row
from perfgate.verdict.speculation import at_accept_length, noted, unexplained
from perfgate.verdict.unrecorded import judge_smoke, uncompared
from perfgate.verdict.words import advise, summarise
from perfgate.workload import Sample


def judge(
    samples: Sequence[Sample],
    baseline: Baseline | None,
    *,
    recording: bool = False,
    min_samples: int | None = None,
    max_samples: int | None = None,
    comparisons: int = COMPARISONS,
    problems: Sequence[str] = (),
    fingerprint: Mapping[str, Any] | None = None,
    fingerprint_differences: Sequence[str] = (),
    targets: Mapping[str, float] | None = None,
    concurrency: int | None = None,
    elsewhere: Mapping[str, Observed] | None = None,
) -> Verdict:
    """Judge one point from its valid samples.

    ``comparisons``: metrics times points of the whole run, over which its error is shared. ``min_samples`` and
    ``max_samples``: the sequential plan, if samples are taken until the answer is clear. ``problems``: what validity
    found and re-measuring did not mend. ``fingerprint`` is compared with the baseline's, or ``fingerprint_differences``
    are given ready. ``targets`` by metric are shown and never gate. ``elsewhere``: spread between starts at the run's other
    points, by metric (``starts_elsewhere``). Never raises for what the samples hold: a failed
    client run, no samples, or figures that are not positive numbers give MISSING or INVALID.
    """
    at = concurrency if concurrency is not None else _concurrency(samples, baseline)
    refused = unusable(samples, baseline, at, problems)
    if refused is not None:
        return Verdict(at, *refused, recording=recording)
    if baseline is None:
        why = f"{len(samples)} valid samples and no baseline for this point on this fingerprint"
        return uncompared(at, samples, recording, why, targets)
    if baseline.is_smoke:
        return judge_smoke(at, samples, baseline, recording, targets)
    apart = list(fingerprint_differences)
    if fingerprint is not None:
        apart += incomparable(baseline.fingerprint, fingerprint, baseline.concurrency)
    if apart:
        why = f"comparison with the baseline of {baseline.recorded_at} refused: {'; '.join(apart)}"
        return uncompared(at, samples, recording, why, targets)
    speculative = baseline.accept_length is not None or any(s.accept_length for s in samples)
    if speculative:
        refusal = accept_refusal(samples, baseline)
        if refusal:
            rows = tuple(plain_row(name, samples, Outcome.INVALID, refusal, targets) for name in METRICS)
            return Verdict(at, Outcome.INVALID, refusal, rows, advice=ACCEPT_ADVICE, recording=recording)
        if "step_time" not in baseline.metrics:
            why = "the baseline has no step time, and with speculation nothing else gates: record it anew"
            return uncompared(at, samples, recording, why, targets)
    level = levels(len(samples), min_samples, max_samples, comparisons)
    compared: list[Comparison] = []
    for name, metric in METRICS.items():
        base = baseline.metrics.get(name)
        if base is None:
            continue
        alone = baseline.accept_length if speculative and name == "throughput" else None
        bounds = baseline.bounds if alone is None else unexplained(baseline.bounds, base.median)
        values = [metric.of(s) for s in (samples if alone is None else at_accept_length(samples, alone))]
        known = [v for v in values if v is not None]
        if len(known) < len(values):
            why = f"{len(values) - len(known)} of {len(values)} samples have no {name}, which the baseline has"
            return Verdict(at, Outcome.INVALID, why, recording=recording)
        seen = (elsewhere or {}).get(name, NOTHING)
        one = compare(metric, known, [s.server_start for s in samples], base, bounds, level, seen)
        compared.append(one if alone is None else noted(one, alone))
    outcome = worst([c.outcome for c in compared])
    want = needed(compared, len(samples), baseline) if outcome is Outcome.INCONCLUSIVE else None
    return Verdict(
        at,
        outcome,
        summarise(outcome, compared, samples, baseline, want),
        tuple(compared_row(c, targets) for c in compared),
        want.count if want else None,
        advise(outcome, baseline, want),
        "recording" if recording else "baseline",
        tuple(compared),
        recording,
    )


def _concurrency(samples: Sequence[Sample], baseline: Baseline | None) -> int | None:
    if baseline is not None:
        return baseline.concurrency
    return next((s.max_concurrency for s in samples if s.max_concurrency is not None), None)


def worst(outcomes: Sequence[Outcome]) -> Outcome:
    for outcome in (Outcome.REGRESSION, Outcome.INCONCLUSIVE, Outcome.IMPROVED):
        if outcome in outcomes:
            return outcome
    return Outcome.PASS
