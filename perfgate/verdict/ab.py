"""A/B: two servers one change apart, samples alternating, judged by the ratio within each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfgate.baseline.floor import shares
from perfgate.baseline.model import METRICS, Baseline, Bounds, Metric, MetricBaseline, MetricName
from perfgate.result import Outcome
from perfgate.stats import (
    NOTHING,
    Interval,
    Observed,
    between_start_weight,
    between_starts,
    median,
    paired_shift,
    robust_spread,
    seen_spread,
)
from perfgate.verdict.compare import FEW, Comparison, guarded, weigh
from perfgate.verdict.levels import COMPARISONS, Levels, levels
from perfgate.verdict.model import Verdict
from perfgate.verdict.needed import needed
from perfgate.verdict.point import worst
from perfgate.verdict.ranks import of_pairs
from perfgate.verdict.refusals import accept_refusal, unusable
from perfgate.verdict.rows import compared_row
from perfgate.verdict.speculation import at_accept_length, noted, unexplained
from perfgate.verdict.words import advise, summarise
from perfgate.workload import Sample


def judge_ab(
    pairs: Sequence[tuple[Sample, Sample]],
    *,
    bounds: Bounds | None = None,
    min_samples: int | None = None,
    max_samples: int | None = None,
    comparisons: int = COMPARISONS,
    problems: Sequence[str] = (),
    targets: Mapping[str, float] | None = None,
    elsewhere: Mapping[str, Observed] | None = None,
) -> Verdict:
    """Judge pairs (old, new) of samples of one point, taken next to each other in seeded order, or in turns.

    Drift hits both of a pair, so the ratio within it is what is judged: its interval is Wilcoxon's signed-rank one,
    exact, or Student's t with too few pairs. The two servers' start effects do not cancel. With one start on each side
    ``bounds`` states them; with several they are seen, here and at the run's other points (``elsewhere``, from
    ``rounds_elsewhere``). The absolute bound has no say: it is for what a machine's figures vary by from run to run, which
    hits both of a pair. With speculation tokens/s are those at the old side's accept length. Outcomes, and what never
    raises, are those of ``judge``.
    """
    bounds = replace(bounds or Bounds(), absolute={})
    old, new = [a for a, _ in pairs], [b for _, b in pairs]
    at = next((s.max_concurrency for s in [*new, *old] if s.max_concurrency is not None), None)
    for side, samples in (("old", old), ("new", new)):
        refused = unusable(samples, None, at, problems)
        if refused is not None:
            return Verdict(at, refused[0], f"{side} side: {refused[1]}", judged_by="ab")
    lengths = [s.accept_length for s in old if s.accept_length]
    speculative = bool(lengths) or any(s.accept_length for s in new)
    stand_in = _stand_in(old, bounds, at, median(lengths) if len(lengths) == len(old) else None)
    if speculative and (refusal := accept_refusal(new, stand_in)):
        return Verdict(at, Outcome.INVALID, refusal, judged_by="ab")
    level = levels(len(pairs), min_samples, max_samples, comparisons)
    compared: list[Comparison] = []
    for name, metric in METRICS.items():
        if name not in stand_in.metrics:
            continue
        values = [v for v in (metric.of(s) for s in new) if v is not None]
        if len(values) < len(new):
            return Verdict(at, Outcome.INVALID, f"new side: samples without {name}, which the old has", judged_by="ab")
        seen = (elsewhere or {}).get(name, NOTHING)
        wanted = stand_in.accept_length
        if wanted is None or name != "throughput":
            compared.append(_compare_pairs(metric, pairs, bounds, level, seen))
            continue
        both = list(zip(at_accept_length(old, wanted), at_accept_length(new, wanted), strict=True))
        loose = unexplained(bounds, median([a.output_throughput for a, _ in both]))
        compared.append(noted(_compare_pairs(metric, both, loose, level, seen), wanted))
    if not compared or (speculative and "step_time" not in stand_in.metrics):
        return Verdict(at, Outcome.INVALID, "the samples have no step time and speculation is on", judged_by="ab")
    outcome = worst([c.outcome for c in compared])
    launches = len({(a.server_start, b.server_start) for a, b in pairs})
    undecided = outcome is Outcome.INCONCLUSIVE
    want = needed(compared, len(pairs), stand_in, paired=True, launches=launches) if undecided else None
    return Verdict(
        at,
        outcome,
        summarise(outcome, compared, new, stand_in, want, paired=True, launches=launches),
        tuple(compared_row(c, targets) for c in compared),
        want.count if want else None,
        advise(outcome, stand_in, want, paired=True, launches=launches),
        "ab",
        tuple(compared),
    )


def _stand_in(old: Sequence[Sample], bounds: Bounds, at: int | None, accept: float | None) -> Baseline:
    """The old side as a baseline of this moment."""
    metrics: dict[MetricName, MetricBaseline] = {}
    for name, metric in METRICS.items():
        values = [v for v in (metric.of(s) for s in old) if v is not None]
        if len(values) == len(old):
            starts = tuple(s.server_start for s in old)
            metrics[name] = MetricBaseline(tuple(values), starts, median(values), robust_spread(values))
    return Baseline(at or 0, metrics, bounds=bounds, accept_length=accept, recorded_at="the old side")


def rounds_elsewhere(others: Sequence[Sequence[tuple[Sample, Sample]]]) -> Mapping[str, Observed]:
    """How far apart the pairs of several server starts are at the run's ``others`` points, by metric, for ``judge_ab``.

    Samples without a usable figure say nothing.
    """
    return {
        name: between_starts([_differences(metric, known) for pairs in others if (known := _known(metric, pairs))])
        for name, metric in METRICS.items()
    }


def _known(metric: Metric, pairs: Sequence[tuple[Sample, Sample]]) -> list[tuple[Sample, Sample]]:
    return [pair for pair in pairs if all((v := metric.of(s)) is not None and v > 0 for s in pair)]


def _differences(metric: Metric, pairs: Sequence[tuple[Sample, Sample]]) -> tuple[list[float], list[int]]:
    """The signed logarithm of each pair's ratio, and the number of the pair of server starts that it is from."""
    old = np.array([metric.of(a) for a, _ in pairs], dtype=float)
    new = np.array([metric.of(b) for _, b in pairs], dtype=float)
    launches = {key: i for i, key in enumerate(sorted({(a.server_start, b.server_start) for a, b in pairs}))}
    return (metric.sign * np.log(new / old)).tolist(), [launches[(a.server_start, b.server_start)] for a, b in pairs]


def _compare_pairs(
    metric: Metric, pairs: Sequence[tuple[Sample, Sample]], bounds: Bounds, level: Levels, elsewhere: Observed
) -> Comparison:
    d, starts = _differences(metric, pairs)
    shift = paired_shift(d, level.alarm)
    if len(d) < FEW:
        shift = guarded(shift, len(d), len(d))
    # A pair of launches differs by two start effects, so its variance is twice one start's.
    spread = seen_spread(((d, starts),), bounds.between_start * math.sqrt(2), elsewhere)
    baseline = median([v for a, _ in pairs if (v := metric.of(a)) is not None])
    size, question_size = shares(metric, bounds, baseline, robust_spread(d) / math.sqrt(2), len(d), len(set(starts)))

    def value(log: float) -> float:
        return baseline * math.exp(max(-700.0, min(700.0, metric.sign * log)))

    ends = sorted((value(shift.low), value(shift.high)))
    return weigh(
        metric,
        value=value(shift.estimate),
        own=Interval(ends[0], ends[1], 0.95, shift.method),
        baseline=baseline,
        size=size,
        question_size=question_size,
        shift=shift,
        se_between=spread.between * math.sqrt(between_start_weight(starts)),
        se_unseen=bounds.unstated * math.sqrt(2) if math.isinf(spread.df) else 0.0,
        df_between=spread.df,
        ranks=of_pairs(d, shift, level.alarm),
        robust=(-median(d), robust_spread(d) / math.sqrt(2)),
        level=level,
    )
