"""The physics of a decode step over all points of a run: Little's law and the step-time law (pure)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from perfgate.recipe import Recipe
from perfgate.result import CheckResult, Outcome, PointResult
from perfgate.scaling import Finding, ScalingBounds, ScalingError, ScalingLaw, SweepPoint, consistency, fit_sweep
from perfgate.scaling.few import unamortised
from perfgate.yardstick import point_bounds


def sweep(recipe: Recipe, points: Sequence[PointResult]) -> list[SweepPoint]:
    """The points that were measured: means of their samples with standard errors.

    Means and not medians, whose error a few samples do not tell: of five that lie at two levels, a median is one of the two.
    """
    found = []
    for point in points:
        rows = [s for s in point.samples if s.counted and s.step_ms is not None and s.throughput is not None]
        if not rows or point.outcome in (Outcome.MISSING, Outcome.INVALID):
            continue
        rates = [(s.server_start, s.throughput) for s in rows if s.throughput is not None]
        accepts = [s.accept_length for s in rows if s.accept_length]
        steps = [(s.server_start, s.step_ms) for s in rows if s.step_ms is not None]
        step, error, dof = _mean(steps)
        tpot = statistics.median(v for _, v in steps) / (statistics.median(accepts) if accepts else 1.0)
        # Throughput is bounded by the mean TPOT. The median may lie above it: where a machine sped up within a sample.
        means = [s.mean_tpot_ms for s in rows if s.mean_tpot_ms]
        tpot = statistics.median(means) if len(means) == len(rows) else tpot
        several = len({s.server_start for s in rows}) > 1
        between = 0.0 if several else point_bounds(recipe, point.concurrency).allowed
        rate, rate_error = statistics.median(v for _, v in rates), _mean(rates)[1]
        found.append(SweepPoint(point.concurrency, step, error, rate, tpot, rate_error, dof, between))
    return found


def _mean(rows: Sequence[tuple[int, float]]) -> tuple[float, float, int]:
    """Mean of samples (server start, value), its standard error, and the degrees of freedom behind that.

    Samples of one start share its effect, so with several starts each counts as one.
    """
    by_start: dict[int, list[float]] = {}
    for start, value in rows:
        by_start.setdefault(start, []).append(value)
    values = [statistics.fmean(v) for v in by_start.values()] if len(by_start) > 1 else [v for _, v in rows]
    spread = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), spread, len(values) - 1


def law(recipe: Recipe, points: Sequence[SweepPoint]) -> ScalingLaw | str:
    """The fitted law, or why these points give none: a model with experts has no line through a few of them."""
    try:
        return fit_sweep(points, recipe.bounds.experts)
    except ScalingError as error:
        return str(error)


def check(recipe: Recipe, points: Sequence[PointResult]) -> list[CheckResult]:
    """One check a law. A run without a measured point has no physics: that is MISSING, not kept."""
    found = findings(recipe, points)
    if not found:
        return [CheckResult(name="law: Little", outcome=Outcome.MISSING, why="no point was measured")]
    return [_as_check(finding) for finding in found]


def findings(recipe: Recipe, points: Sequence[PointResult]) -> list[Finding]:
    """Every law over the points that were measured; none where none was."""
    measured = sweep(recipe, points)
    if not measured:
        return []
    own = recipe.bounds
    bounds = ScalingBounds(own.max_a_ms, own.max_b_ms, own.max_e_ms, own.min_speedup, max(recipe.concurrencies))
    return consistency(measured, law(recipe, measured), bounds, recipe.workload.little_share)


def spoilt(recipe: Recipe, points: Sequence[PointResult], recording: bool = False) -> list[PointResult]:
    """The points with those INVALID whose figures a broken law speaks against: they pass nothing and are not recorded.

    A REGRESSION stays one, with the law's words, since a server may really do that; but not where the figures contradict
    each other (Little's law), nor where they would be recorded.
    """
    against: dict[int, list[Finding]] = {}
    for finding in findings(recipe, points):
        if finding.state == "broken":
            for concurrency in finding.points:
                against.setdefault(concurrency, []).append(finding)
    return [_spoilt(p, against[p.concurrency], recording) if p.concurrency in against else p for p in points]


def _spoilt(point: PointResult, broken: Sequence[Finding], recording: bool) -> PointResult:
    contradicted = recording or any(f.law == "little" for f in broken)
    stays = point.outcome is Outcome.REGRESSION and not contradicted
    said = "; ".join(f"law of the decode step ({_NAMES[f.law]}): {f.why}" for f in broken)
    change = {"outcome": Outcome.REGRESSION if stays else Outcome.INVALID, "why": f"{said}. {point.why}"}
    return point.model_copy(update={**change, "advice": point.advice if stays else ADVICE})


ADVICE = (
    "measure these points again; a law that breaks again is the server's: look at its batch lines and graph sizes at these "
    "concurrencies"
)


def as_extra(recipe: Recipe, points: Sequence[PointResult]) -> dict[str, Any] | None:
    """The points and the fit as the report draws them, without a fit where there is none; None with fewer than two points."""
    measured = sweep(recipe, points)
    if len(measured) < 2:
        return None
    drawn: dict[str, Any] = {"points": [{"n": p.concurrency, "step_ms": p.step_ms, "sd_ms": p.sd_ms} for p in measured]}
    fitted = law(recipe, measured)
    if isinstance(fitted, str):
        experts = recipe.bounds.experts
        all_the_same = unamortised(measured, experts) if experts is not None else None
        return {**drawn, "laws": [fitted] if all_the_same is None else [all_the_same, fitted]}
    ends = {"a": fitted.a_interval, "b": fitted.b_interval, "e": fitted.e_interval}
    drawn |= {"a": fitted.a, "b": fitted.b, "laws": list(fitted.verdicts)}
    if fitted.e is not None and fitted.experts is not None:
        drawn |= {"e": fitted.e, "experts": list(fitted.experts)}
    if fitted.b_interval[0] > 0:  # else what one request costs is not seen, and no batch size bounds the throughput
        drawn["asymptote"] = fitted.asymptote
        ends["asymptote"] = fitted.asymptote_interval
    if fitted.residual_p is not None:
        drawn["residual_p"] = fitted.residual_p
    return {**drawn, "intervals": {name: list(end) for name, end in ends.items() if end is not None}}


_NAMES = {
    "little": "Little",
    "standstill": "no standstill",
    "falling": "step time does not fall",
    "residual": "residual",
    "bound": "bound",
}


def _as_check(finding: Finding) -> CheckResult:
    where = f" C={finding.concurrency}" if finding.concurrency is not None else ""
    broken = Outcome.REGRESSION if finding.law == "bound" else Outcome.INVALID
    outcome = broken if finding.state == "broken" else Outcome.PASS
    return CheckResult(name=f"law: {_NAMES[finding.law]}{where}", outcome=outcome, why=finding.why)
