"""The sentences of a verdict: what was seen, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.baseline.model import Baseline
from perfgate.result import Outcome
from perfgate.verdict.compare import Comparison
from perfgate.verdict.needed import Needed
from perfgate.workload import Sample


def share(log: float) -> float:
    """A difference of logarithms as a share."""
    return math.expm1(min(log, 700.0))


def explain(c: Comparison) -> str:
    """One metric's comparison in one sentence."""
    ends = f"95 % interval {c.change_low:+.1%} to {c.change_high:+.1%}"
    span = f"{c.change:+.1%} against {c.baseline:.4g} {c.metric.unit} ({ends})"
    noise = f"{c.k:.1f} standard errors of {share(c.se):.2%}"
    if c.outcome is Outcome.REGRESSION:
        return f"{span}: beyond the floor, and more than {noise}"
    if c.outcome is Outcome.IMPROVED:
        return f"{span}: more than {noise}"
    if c.outcome is Outcome.PASS:
        return f"{span}: a loss of {share(c.question):.1%} is excluded"
    if c.drop > c.bound and c.drop <= c.noise:
        return f"{span}: beyond the floor, but noise alone reaches {share(c.noise):.1%} ({noise})"
    if c.drop_high >= c.question:
        possible = share(max(c.drop_high, 0.0))
        return f"{span}: a loss of {possible:.1%} is possible, more than the {share(c.question):.1%} that pass"
    return f"{span}: about the floor of {c.floor:.4g} {c.metric.unit}, too close to call"


def summarise(
    outcome: Outcome,
    compared: Sequence[Comparison],
    samples: Sequence[Sample],
    baseline: Baseline,
    want: Needed | None,
    paired: bool = False,
) -> str:
    """The point's verdict in one paragraph: the metrics that decided it, the number of samples, what it rests on."""
    decisive = [c for c in compared if c.outcome is outcome] or list(compared)
    parts = [f"{c.metric.name.replace('_', ' ')} {explain(c)}" for c in decisive]
    base = next(iter(baseline.metrics.values()))
    counts = f"{len(samples)} samples against {len(base.samples)} of {baseline.recorded_at or 'the baseline'}"
    if paired:
        launches = len({s.server_start for s in samples})
        of = "" if launches == 1 else f" of {launches} starts of each side"
        counts = f"{len(samples)} pairs{of}, judged by the ratio within each"
    if len({s.server_start for s in samples}) == 1 and len(set(base.starts)) == 1:
        stated = f"{baseline.bounds.between_start:.2%}"
        counts += f"; one server start on each side, so {stated} between starts is the recipe's figure"
    text = f"{'; '.join(parts)} [{counts}]"
    if want is not None:
        text += f". {settles(want)}"
    return text


def settles(want: Needed) -> str:
    """What would settle it, with the number."""
    if want.samples is not None:
        return f"About {want.samples} samples would settle it"
    if want.both is not None:
        return f"About {want.both} samples on each side would settle it: the baseline has too few"
    return (
        "No number of samples settles it: "
        f"the spread between server starts needs about {want.starts} starts on each side"
    )


def advise(outcome: Outcome, baseline: Baseline, want: Needed | None) -> str:
    """The next command."""
    against = f"--against-commit {baseline.commit}" if baseline.commit else "--against RECIPE"
    if outcome is Outcome.REGRESSION:
        return (
            f"run the old state beside it before blaming the change ({against}, A/B on this machine), "
            "and --profile to see where the time went; a loss that is accepted is recorded with --record --reason TEXT"
        )
    if outcome is Outcome.INCONCLUSIVE:
        if want is not None and want.samples is not None:
            return f"--samples {want.samples}, or {against} for an interleaved A/B, which cancels drift"
        if want is not None and want.both is not None:
            return f"{against} with --samples {want.both}, or record the baseline anew with that many samples"
        return f"{against} with alternating server starts"
    if outcome is Outcome.IMPROVED:
        return "keep the gain: --record --reason TEXT"
    return ""
