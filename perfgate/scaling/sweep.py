"""The points of one sweep, and how well a few samples a point let their step times be known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_NOISE = 0.0005
"""Relative noise assumed of a step time that comes with none: half of the quietest that the field reports (0.1 %)."""


@dataclass(frozen=True)
class SweepPoint:
    """One concurrency of a sweep. ``step_ms`` is the decode step with its standard error ``sd_ms``; ``tpot_ms`` the
    time per output token where it differs (speculation); ``throughput`` output tokens/s with its standard error
    ``throughput_sd``, None where not known.

    ``dof``: degrees of freedom behind the standard errors, samples (or server starts) less one; None where they are known.
    ``between``: stated relative spread between server starts, which the samples of one start do not show.
    """

    concurrency: int
    step_ms: float
    sd_ms: float
    throughput: float | None = None
    tpot_ms: float | None = None
    throughput_sd: float | None = None
    dof: int | None = None
    between: float = 0.0


@dataclass(frozen=True)
class Noise:
    """Standard errors of a sweep's step times in ms, in the order of its points.

    ``most`` is the larger of what a point's own samples show and what those of all points do together, with the stated
    spread between starts; ``least`` the smaller, without it. A few samples lie close together now and then, and a noisy
    point makes the others look noisy: a test takes the one that leaves it the harder to fail. ``dof`` are those of the
    pooled variance (Satterthwaite's, so that one noisy point among quiet ones counts as one), inf where all is known.
    """

    most: tuple[float, ...]
    least: tuple[float, ...]
    dof: float
    own_dof: tuple[float, ...]

    def pair_dof(self, i: int, j: int) -> float:
        """Degrees of freedom of a difference of two points: both points' own, and no more than the pooled."""
        return max(1.0, min(self.dof, self.own_dof[i] + self.own_dof[j]))


def noise(points: Sequence[SweepPoint]) -> Noise | None:
    """How well the step times are known; None where no point has two samples, so that nothing tells."""
    drawn = [p for p in points if p.dof is not None]
    variances = [(p.dof, (p.sd_ms / p.step_ms) ** 2 * (p.dof + 1)) for p in drawn if p.dof]
    known = sum(dof for dof, _ in variances)
    if drawn and not known:
        return None
    pooled = sum(dof * v for dof, v in variances) / known if known else 0.0
    squares = sum(dof * v * v for dof, v in variances)
    # Samples that are all alike to the last digit show no noise, and all of them together as well as one.
    dof = (known * pooled) ** 2 / squares if squares > 0 else float(known)
    most, least = [], []
    for p in points:
        own = p.sd_ms / p.step_ms
        ends = [own, own]
        if p.dof is not None:
            shared = math.sqrt(pooled / (p.dof + 1))
            ends = sorted((own, shared)) if p.dof else [shared, shared]
        least.append(max(ends[0], LEAST_NOISE) * p.step_ms)
        most.append(math.hypot(max(ends[1], LEAST_NOISE), p.between) * p.step_ms)
    own_dof = tuple(math.inf if p.dof is None else float(p.dof) for p in points)
    return Noise(tuple(most), tuple(least), dof if drawn else math.inf, own_dof)
