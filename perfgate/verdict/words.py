"""The sentences of a verdict: what was seen, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.baseline.model import Baseline, Bounds, Metric
from perfgate.result import Outcome
from perfgate.verdict.compare import Comparison
from perfgate.verdict.needed import MOST, MOST_STARTS, Needed
from perfgate.workload import Sample

SEVERAL = 6
"""Starts of each side that show what spread they have."""

LOUD = math.log(2)
"""Noise from which its size is no figure any more that a reader could use."""


def percent(share: float, digits: int = 1, sign: str = "") -> str:
    """A share, 0.5 as ``50.0%``; a few samples can make it astronomical, which only says that little is known."""
    return f"{share:{sign}.{digits}%}" if share < 10 else f"more than {sign}1000%"


def loss(metric: Metric, log: float) -> float:
    """A drop on signed logarithms as a share of the baseline: where step time doubles (1.0), throughput halves (0.5)."""
    return -math.expm1(-log) if metric.sign > 0 else math.expm1(min(log, 700.0))


def explain(c: Comparison) -> str:
    """One metric's comparison in one sentence."""
    change, low, high = (percent(share, sign="+") for share in (c.change, c.change_low, c.change_high))
    span = f"{change} against {c.baseline:.4g} {c.metric.unit} (95 % interval {low} to {high})"
    noise = f"{c.k:.1f} standard errors of {percent(math.expm1(min(c.se_alarm, 700.0)), 2)}"
    if c.outcome is Outcome.REGRESSION:
        return f"{span}: beyond the floor, and more than {noise}"
    if c.outcome is Outcome.IMPROVED:
        return f"{span}: more than {noise}"
    if c.outcome is Outcome.PASS:
        return f"{span}: a loss of {percent(loss(c.metric, c.question))} is excluded"
    if c.drop > c.bound and c.drop <= c.noise:
        reach = f"reaches {percent(loss(c.metric, c.noise))}"
        if c.noise > LOUD:
            reach = f"can more than {'halve' if c.metric.sign > 0 else 'double'} it"
        return f"{span}: beyond the floor, but noise alone {reach} ({noise})"
    if c.drop_high >= c.question:
        possible, allowed = (percent(loss(c.metric, log)) for log in (max(c.drop_high, 0.0), c.question))
        return f"{span}: a loss of {possible} is possible, more than the {allowed} that pass"
    return f"{span}: about the floor of {c.floor:.4g} {c.metric.unit}, too close to call"


def summarise(
    outcome: Outcome,
    compared: Sequence[Comparison],
    samples: Sequence[Sample],
    baseline: Baseline,
    want: Needed | None,
    paired: bool = False,
    launches: int = 1,
) -> str:
    """The point's verdict in one paragraph: the metrics that decided it, the number of samples, what it rests on; of an A/B
    (``paired``) on how many ``launches`` of each side."""
    decisive = [c for c in compared if c.outcome is outcome] or list(compared)
    parts = [f"{c.metric.name.replace('_', ' ')} {explain(c)}" for c in decisive]
    base = next(iter(baseline.metrics.values()))
    counts = f"{len(samples)} samples against {len(base.samples)} of {baseline.recorded_at or 'the baseline'}"
    if paired:
        of = "" if launches == 1 else f" of {launches} starts of each side"
        counts = f"{len(samples)} pairs{of}, judged by the ratio within each"
    if len({s.server_start for s in samples}) == 1 and len(set(base.starts)) == 1:
        counts += f"; one server start on each side, {_between(baseline.bounds)}"
    text = f"{'; '.join(parts)} [{counts}]"
    if want is not None:
        text += f". {settles(want, 'pairs' if paired else 'samples')}"
    return text


def _between(bounds: Bounds) -> str:
    if bounds.unstated:
        return f"and the recipe states no spread between starts: until several show it, an alarm allows for {bounds.unstated:.2%}"
    return f"so the spread between starts is the recipe's figure, {bounds.between_start:.2%}"


def settles(want: Needed, unit: str) -> str:
    """What would settle it, with the number. ``unit``: samples or pairs."""
    if not want.known:
        few = f"So few {unit}" if want.samples is not None else "So few samples of the baseline"
        where = "" if want.samples is not None else " on each side"
        return f"{few} do not show how large their noise is: {want.count} or more{where} do"
    if want.samples is not None:
        return f"About {want.samples} {unit} would settle it"
    if want.both is not None:
        return f"About {want.both} samples on each side would settle it: the baseline has too few"
    if want.starts is None:
        count = f"{MOST_STARTS} starts of each side" if want.turns else f"{MOST} {unit}"
        return f"More than {count} would be needed: the noise is too large for this question"
    if want.turns:
        return f"About {want.starts} starts of each side would settle it"
    return (
        f"No number of {unit} settles it: "
        f"the spread between server starts needs about {want.starts} starts on each side"
    )


def advise(outcome: Outcome, baseline: Baseline, want: Needed | None, paired: bool = False, launches: int = 1) -> str:
    """The next command. ``want`` is given where the outcome is INCONCLUSIVE, and only there. ``paired``: this was an A/B, so
    another is no way out; of ``launches`` starts a side."""
    against = f"--against-commit {baseline.commit}" if baseline.commit else "--against RECIPE"
    if outcome is Outcome.REGRESSION:
        accepted = "a loss that is accepted is recorded with --record --reason TEXT"
        if paired:  # a profile is of both servers at once, which servers that take turns are not
            return accepted if launches > 1 else f"--profile, to see where the time went; {accepted}"
        return (
            f"run the old state beside it before blaming the change ({against}, A/B on this machine), "
            f"and --profile to see where the time went; {accepted}"
        )
    if want is not None:
        return _settle(want, against, paired)
    if outcome is Outcome.IMPROVED:
        return "keep the gain: --record --reason TEXT"
    return ""


def _settle(want: Needed, against: str, paired: bool) -> str:
    if want.samples is not None:
        beside = "" if paired else f", or {against} for an interleaved A/B, which cancels drift"
        return f"--samples {want.samples}{beside}"
    if want.both is not None:
        return f"{against} with --samples {want.both}, or record the baseline anew with that many samples"
    if want.starts is None:
        beside = "" if paired else f", or {against}, whose pairs cancel drift"
        return f"free the machine of other work and run again{beside}"
    if want.turns:
        return f"--starts {want.starts}"
    # The stated spread may be larger than the real one, which a few starts show.
    count = min(want.starts, SEVERAL)
    beside = "--starts" if paired else f"{against} --starts"
    return f"{beside} {count}: both sides in turns, as many starts of each, which show their own spread"
