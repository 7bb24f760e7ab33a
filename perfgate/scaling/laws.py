"""What a sweep over concurrencies has to obey: a breach is a fault in the numbers or a bad server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from perfgate.scaling.law import DOF_TO_TEST, ScalingError, ScalingLaw, Term, fit_sweep
from perfgate.scaling.sweep import Noise, SweepPoint, noise
from perfgate.stats import quantile

ABOVE_LITTLE = 0.03
"""Room above C/TPOT: TPOT leaves out the first token of a request, and may be given as a median."""

STANDSTILL_SHARE = 0.4
"""Least share of C/TPOT that a working server delivers (healthy runs 0.69-0.86, stalled ones 0.02-0.07)."""

FALLING_P = 4e-4
TOO_LARGE_P = 2e-4
TOO_SMALL_P = 1e-4
BOUNDS_P = 3e-4
"""How often noise alone may break each kind of law in an honest run, once over all points or bounds: together at most one
run in a thousand, little beside the one in 200 that may cry wolf. tests/evaluation measures it."""

FALLING_SHARE = 0.02
MISFIT_SHARE = 0.15
"""A law of two or three terms leaves out the steps of tiles and graph sizes: only a larger misfit is a fault."""


@dataclass(frozen=True)
class ScalingBounds:
    """What a recipe asks of the law: most a, b and e in ms, least speed-up from one request to ``largest`` at once."""

    a_max: float | None = None
    b_max: float | None = None
    e_max: float | None = None
    speedup_min: float | None = None
    largest: int | None = None

    @property
    def count(self) -> int:
        """Bounds that are asked for."""
        return sum(bound is not None for bound in (self.a_max, self.b_max, self.e_max, self.speedup_min))


@dataclass(frozen=True)
class Finding:
    """One law. ``concurrency`` is None where the whole sweep is meant; ``points`` are those whose figures a broken law
    speaks against, none where it is only a recipe's bound."""

    law: Literal["little", "standstill", "falling", "residual", "bound"]
    state: Literal["kept", "broken", "not testable"]
    why: str
    concurrency: int | None = None
    points: tuple[int, ...] = ()


def consistency(
    points: Sequence[SweepPoint],
    law: ScalingLaw | str | None = None,
    bounds: ScalingBounds | None = None,
    standstill_share: float = STANDSTILL_SHARE,
) -> list[Finding]:
    """Every law over the points of one sweep; a point is at fault where a finding's state is ``broken``.

    ``law`` may be why none could be fitted: what rests on it is then not testable, and none of it kept.
    """
    ordered = sorted(points, key=lambda p: p.concurrency)
    found = [f for p in ordered for f in _little(p, standstill_share)]
    seen = noise(ordered)
    found += [_falling(ordered, i, seen) for i in range(len(ordered) - 1)]
    if law is not None:
        found.append(Finding("residual", "not testable", law) if isinstance(law, str) else _residual(law, ordered))
        found += _bounds(law, ordered, bounds or ScalingBounds())
    return found


def _little(point: SweepPoint, share: float) -> list[Finding]:
    if point.throughput is None:
        return []
    tpot = point.tpot_ms or point.step_ms
    most = 1000 * point.concurrency / tpot
    ratio = point.throughput / most
    said = f"{point.throughput:.4g} tok/s is {ratio:.2f} of C/TPOT = {most:.4g} at C={point.concurrency}"
    above, below = ratio > 1 + ABOVE_LITTLE, ratio < share
    return [
        Finding(
            "little",
            "broken" if above else "kept",
            f"{said}: more than its own step time allows, so one of the two figures is not a measurement"
            if above
            else said,
            point.concurrency,
            (point.concurrency,),
        ),
        Finding(
            "standstill",
            "broken" if below else "kept",
            f"{said}: below {share:g}, so the server stood still for most of the time" if below else said,
            point.concurrency,
            (point.concurrency,),
        ),
    ]


def _falling(points: Sequence[SweepPoint], i: int, seen: Noise | None) -> Finding:
    one, more = points[i], points[i + 1]
    said = f"step time {one.step_ms:.4g} ms at C={one.concurrency}, {more.step_ms:.4g} ms at C={more.concurrency}"
    if seen is None:
        return Finding("falling", "not testable", f"{said}: single samples show no noise", more.concurrency)
    k = quantile(1 - FALLING_P / (len(points) - 1), seen.pair_dof(i, i + 1))
    noise_ms = k * math.hypot(seen.most[i], seen.most[i + 1])
    broken = one.step_ms - more.step_ms > max(noise_ms, FALLING_SHARE * one.step_ms)
    tail = f": it falls by more than noise ({noise_ms:.2g} ms), so more work took less time" if broken else ""
    both = (one.concurrency, more.concurrency)
    return Finding("falling", "broken" if broken else "kept", said + tail, more.concurrency, both)


def _residual(law: ScalingLaw, points: Sequence[SweepPoint]) -> Finding:
    if law.residual_p is None or law.excess_p is None:
        why = f"not testable with so few points: degrees of freedom {law.dof}, {DOF_TO_TEST} or more are needed"
        return Finding("residual", "not testable", why)
    said = f"residuals up to {law.misfit:.2%}, left-tail p {law.residual_p:.2g} with {law.dof} degrees of freedom"
    if law.residual_p < TOO_SMALL_P:
        why = f"{said}: closer to a line than any measurement with this noise comes"
        return Finding("residual", "broken", why, points=tuple(p.concurrency for p in points))
    if law.excess_p < TOO_LARGE_P and law.misfit > MISFIT_SHARE:
        worst = max(law.points, key=lambda p: abs(p[1] - law.predict(p[0])) / p[1])
        why = f"{said}: {worst[1]:.4g} ms where the law gives {law.predict(worst[0]):.4g} ms"
        return Finding("residual", "broken", why, int(worst[0]), _odd_ones(law, points))
    return Finding("residual", "kept", said)


def _odd_ones(law: ScalingLaw, points: Sequence[SweepPoint]) -> tuple[int, ...]:
    """The points without any one of which the others obey the law; all where there is none. A point at the end of the sweep
    bends the law towards itself, so the largest residual is not always the odd one's."""
    found = []
    for p in points:
        try:
            others = fit_sweep([q for q in points if q is not p], law.experts)
        except ScalingError:
            continue
        if others.misfit <= MISFIT_SHARE:
            found.append(p.concurrency)
    return tuple(found or [p.concurrency for p in points])


def _bounds(law: ScalingLaw | str, points: Sequence[SweepPoint], bounds: ScalingBounds) -> list[Finding]:
    found: list[Finding] = []
    wanted: dict[Term, float | None] = {"a": bounds.a_max, "b": bounds.b_max, "e": bounds.e_max}
    limits = {name: most for name, most in wanted.items() if most is not None}
    for name, most in limits.items():
        if isinstance(law, str):
            found.append(Finding("bound", "not testable", f"{name} is bounded by {most:g} ms, but {law}"))
            continue
        value = getattr(law, name)
        if value is None:
            found.append(Finding("bound", "not testable", f"{name} is bounded by {most:g} ms, but was not fitted"))
            continue
        # Beyond the bound with the whole interval: a wide interval is a reason to measure more, not to fail.
        low, high = law.ends(name, 1 - BOUNDS_P / bounds.count)
        said = f"{name} = {value:.4g} ms ({low:.4g} to {high:.4g}), at most {most:g}"
        found.append(Finding("bound", "broken" if low > most else "kept", said))
    if bounds.speedup_min is not None:
        found.append(_speedup(points, bounds, bounds.speedup_min))
    return found


def _speedup(points: Sequence[SweepPoint], bounds: ScalingBounds, least: float) -> Finding:
    """Held to the two ends that the bound is about: a part of the sweep has less to gain."""
    first, last = points[0], points[-1]
    largest = bounds.largest or last.concurrency
    seen = noise(points)
    if (first.concurrency, last.concurrency) != (1, largest) or largest == 1 or seen is None:
        ran = ", ".join(f"C={p.concurrency}" for p in points)
        why = f"a speed-up of {least:g} is asked from C=1 to C={largest}, and there is {ran}"
        return Finding("bound", "not testable", why if seen is not None else f"{why}, with single samples")
    if first.throughput and last.throughput and first.throughput_sd is not None and last.throughput_sd is not None:
        gain = last.throughput / first.throughput
        error = math.hypot(first.throughput_sd / first.throughput, last.throughput_sd / last.throughput)
    else:
        gain = last.concurrency / first.concurrency * first.step_ms / last.step_ms
        error = math.hypot(seen.most[0] / first.step_ms, seen.most[-1] / last.step_ms)
    error = math.hypot(error, first.between, last.between)
    half = quantile(1 - BOUNDS_P / bounds.count, seen.pair_dof(0, -1)) * error
    low, high = gain * math.exp(-half), gain * math.exp(min(half, 700.0))
    said = f"speed-up {gain:.3g} ({low:.3g} to {high:.3g}) from C=1 to C={largest}, at least {least:g}"
    return Finding("bound", "broken" if high < least else "kept", said)
