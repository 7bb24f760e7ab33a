"""What a sweep over concurrencies has to obey: a breach is a fault in the numbers or a bad server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from perfgate.scaling.law import DOF_TO_TEST, ScalingLaw

ABOVE_LITTLE = 0.03
"""Room above C/TPOT: TPOT leaves out the first token of a request, and may be given as a median."""

STANDSTILL_SHARE = 0.4
"""Least share of C/TPOT that a working server delivers (healthy runs 0.69-0.86, stalled ones 0.02-0.07)."""

FALLING_ERRORS = 3.0
FALLING_SHARE = 0.02
TOO_SMALL_P = 1e-4
"""One honest sweep in ten thousand is called too exact: little beside the one run in 200 that may cry wolf."""

TOO_LARGE_P = 0.999
MISFIT_SHARE = 0.15
"""A law of two or three terms leaves out the steps of tiles and graph sizes: only a larger misfit is a fault."""


@dataclass(frozen=True)
class SweepPoint:
    """One concurrency of a sweep. ``step_ms`` is the decode step with its standard deviation ``sd_ms``; ``tpot_ms`` the
    time per output token where it differs (speculation); ``throughput`` output tokens/s, None where not known."""

    concurrency: int
    step_ms: float
    sd_ms: float
    throughput: float | None = None
    tpot_ms: float | None = None


@dataclass(frozen=True)
class ScalingBounds:
    """What a recipe asks of the law: most a, b and e in ms, least speed-up from one request to the largest C."""

    a_max: float | None = None
    b_max: float | None = None
    e_max: float | None = None
    speedup_min: float | None = None


@dataclass(frozen=True)
class Finding:
    """One law. ``concurrency`` is None where the whole sweep is meant."""

    law: Literal["little", "standstill", "falling", "residual", "bound"]
    state: Literal["kept", "broken", "not testable"]
    why: str
    concurrency: int | None = None


def consistency(
    points: Sequence[SweepPoint],
    law: ScalingLaw | None = None,
    bounds: ScalingBounds | None = None,
    standstill_share: float = STANDSTILL_SHARE,
) -> list[Finding]:
    """Every law over the points of one sweep; a point is at fault where a finding's state is ``broken``."""
    ordered = sorted(points, key=lambda p: p.concurrency)
    found = [f for p in ordered for f in _little(p, standstill_share)]
    found += [_falling(a, b) for a, b in pairwise(ordered)]
    if law is not None:
        found.append(_residual(law))
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
        ),
        Finding(
            "standstill",
            "broken" if below else "kept",
            f"{said}: below {share:g}, so the server stood still for most of the time" if below else said,
            point.concurrency,
        ),
    ]


def _falling(one: SweepPoint, more: SweepPoint) -> Finding:
    fall = one.step_ms - more.step_ms
    noise = FALLING_ERRORS * math.hypot(one.sd_ms, more.sd_ms)
    broken = fall > max(noise, FALLING_SHARE * one.step_ms)
    said = f"step time {one.step_ms:.4g} ms at C={one.concurrency}, {more.step_ms:.4g} ms at C={more.concurrency}"
    tail = f": it falls by more than noise ({noise:.2g} ms), so more work took less time" if broken else ""
    return Finding("falling", "broken" if broken else "kept", said + tail, more.concurrency)


def _residual(law: ScalingLaw) -> Finding:
    if law.residual_p is None:
        why = f"not testable with so few points: degrees of freedom {law.dof}, {DOF_TO_TEST} or more are needed"
        return Finding("residual", "not testable", why)
    said = f"residuals up to {law.misfit:.2%}, left-tail p {law.residual_p:.2g} with {law.dof} degrees of freedom"
    if law.residual_p < TOO_SMALL_P:
        return Finding("residual", "broken", f"{said}: closer to a line than any measurement with this noise comes")
    if law.residual_p > TOO_LARGE_P and law.misfit > MISFIT_SHARE:
        worst = max(law.points, key=lambda p: abs(p[1] - law.predict(p[0])) / p[1])
        why = f"{said}: {worst[1]:.4g} ms where the law gives {law.predict(worst[0]):.4g} ms"
        return Finding("residual", "broken", why, int(worst[0]))
    return Finding("residual", "kept", said)


def _bounds(law: ScalingLaw, points: Sequence[SweepPoint], bounds: ScalingBounds) -> list[Finding]:
    found: list[Finding] = []
    for name, value, ends, most in (
        ("a", law.a, law.a_interval, bounds.a_max),
        ("b", law.b, law.b_interval, bounds.b_max),
        ("e", law.e, law.e_interval, bounds.e_max),
    ):
        if most is None:
            continue
        if value is None:
            found.append(Finding("bound", "not testable", f"{name} is bounded by {most:g} ms, but was not fitted"))
            continue
        # Beyond the bound with the whole interval: a wide interval is a reason to measure more, not to fail.
        surely = value > most and (ends is None or ends[0] > most)
        said = f"{name} = {value:.4g} ms, at most {most:g}"
        found.append(Finding("bound", "broken" if surely else "kept", said))
    if bounds.speedup_min is not None and len(points) > 1:
        first, last = points[0], points[-1]
        if first.throughput and last.throughput:
            gain = last.throughput / first.throughput
        else:
            gain = last.concurrency / first.concurrency * first.step_ms / last.step_ms
        span = f"from C={first.concurrency} to C={last.concurrency}"
        said = f"speed-up {gain:.3g} {span}, at least {bounds.speedup_min:g}"
        found.append(Finding("bound", "broken" if gain < bounds.speedup_min else "kept", said, last.concurrency))
    return found
