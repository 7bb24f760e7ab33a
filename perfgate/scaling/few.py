"""What points too few for the law of a mixture of experts show all the same: a cost per request that experts cannot explain."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.scaling.law import UNAMORTISED, Experts, expert_coverage
from perfgate.scaling.sweep import SweepPoint, noise
from perfgate.stats import quantile


def unamortised(points: Sequence[SweepPoint], experts: Experts) -> str | None:
    """A sentence where each request costs a step so much that no batch amortises it, whatever the experts cost.

    Experts explain no more growth from one concurrency to the next than their coverage has. So the two largest points have
    b >= (S2 - r*S1)/(N2 - r*N1) with r = E(N2)/E(N1), and more where a step costs anything besides; noise goes to the least.
    """
    ordered = sorted(points, key=lambda p: p.concurrency)
    seen = noise(ordered) if len({p.concurrency for p in ordered}) > 1 else None
    if seen is None:
        return None
    (one, more), (few, many) = ordered[-2:], (ordered[-2].concurrency, ordered[-1].concurrency)
    r = expert_coverage(many, experts) / expert_coverage(few, experts)
    error = math.hypot(seen.most[-1], r * seen.most[-2]) * quantile(0.975, seen.pair_dof(-2, -1))
    least = (more.step_ms - r * one.step_ms - error) / (many - r * few)
    first = ordered[0]
    if least <= 0 or first.step_ms - least * (first.concurrency - 1) >= UNAMORTISED * least:
        return None
    return (
        f"a cost per request that no batch amortises: {least:.3g} ms or more of each step for every request, whatever the "
        f"experts cost, so {1000 / least:.4g} tok/s at most"
    )
