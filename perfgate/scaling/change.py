"""What kind of cost a step gained from one state to another: told by how the difference grows with the batch.

delta(N) = new step time - old step time, from pairs. Three explanations with one number each are held against it: a share
of each step (delta = s*step(N)), a fixed time a step (delta = t), and a cost per request (delta = c*N). The likeliest is
named only where the others are so much less likely that it can be told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2

from perfgate.scaling.law import ScalingError
from perfgate.scaling.sweep import LEAST_NOISE

Kind = Literal["share", "step", "request"]

WORDS: dict[Kind, str] = {
    "share": "a share of each step",
    "step": "a fixed time a step",
    "request": "a cost per request",
}

TELLS_APART = 6.0
"""Difference of chi-squares from which one explanation is preferred: a likelihood ratio of 20."""

MISFIT_P = 0.001
"""Below this probability of its residuals the likeliest explanation does not explain the differences either."""


@dataclass(frozen=True)
class Explanation:
    """One kind of cost fitted to the differences: ``amount`` is a share (1 is 100 %) or ms, with its 95 % interval."""

    kind: Kind
    amount: float
    low: float
    high: float
    chi_square: float

    def __str__(self) -> str:
        figures = [self.amount, self.low, self.high]
        if self.kind == "share":
            shown = [f"{v:+.1%}" for v in figures]
        else:
            unit = "ms a step" if self.kind == "step" else "ms a request"
            shown = [f"{v:+.3g}" for v in figures]
            return f"{WORDS[self.kind]}, {shown[0]} {unit} (95 % interval {shown[1]} to {shown[2]})"
        return f"{WORDS[self.kind]}, {shown[0]} (95 % interval {shown[1]} to {shown[2]})"


@dataclass(frozen=True)
class StepChange:
    """All explanations, likeliest first. ``dof``: points less one."""

    explanations: tuple[Explanation, ...]
    dof: int

    @property
    def best(self) -> Explanation:
        return self.explanations[0]

    @property
    def changed(self) -> bool:
        """True where the likeliest explanation's interval leaves zero out."""
        return self.best.low > 0 or self.best.high < 0

    @property
    def rivals(self) -> tuple[Explanation, ...]:
        """Explanations that cannot be told from the likeliest."""
        limit = self.best.chi_square + TELLS_APART
        return tuple(e for e in self.explanations[1:] if e.chi_square < limit)

    @property
    def explains(self) -> bool:
        """True where the likeliest explanation leaves residuals that the errors allow."""
        return float(chi2.sf(self.best.chi_square, self.dof)) >= MISFIT_P

    @property
    def per_request(self) -> bool | None:
        """True for a cost per request, False for a cost of the step itself (a share or a fixed time), None: not told."""
        if not self.changed or not self.explains:
            return None
        kinds = {e.kind == "request" for e in (self.best, *self.rivals)}
        return kinds.pop() if len(kinds) == 1 else None

    def __str__(self) -> str:
        if not self.changed:
            return f"no change of the step time over all points is seen ({self.best})"
        if not self.explains:
            return f"the step time changed, but neither evenly nor with the batch (nearest: {self.best})"
        if self.rivals:
            others = " or ".join(WORDS[e.kind] for e in self.rivals)
            return f"{self.best}; {others} would explain it nearly as well"
        return str(self.best)


def explain_change(points: Sequence[tuple[float, float, float, float]]) -> StepChange:
    """Explain differences of step time ``(n, old_ms, delta_ms, sd_ms)``; ``sd_ms`` is the standard error of ``delta_ms``.

    Raises ScalingError with fewer than 2 different n, or figures that are no measurement.
    """
    rows = [tuple(map(float, p)) for p in points]
    for row in rows:
        if not (row[0] > 0 and row[1] > 0 and row[3] >= 0 and math.isfinite(sum(row))):
            raise ScalingError(f"a change needs n > 0, old_ms > 0 and sd_ms >= 0, all finite; got {row}")
    if len({r[0] for r in rows}) < 2:
        raise ScalingError(f"a change is explained from 2 or more concurrencies, got {len({r[0] for r in rows})}")
    n, old, delta = (np.array([r[i] for r in rows]) for i in range(3))
    noise = np.array([max(r[3], LEAST_NOISE * r[1]) for r in rows])
    shapes: dict[Kind, NDArray[np.float64]] = {"share": old, "step": np.ones_like(n), "request": n}
    dof = len(rows) - 1
    found = [_fit(kind, shape / noise, delta / noise) for kind, shape in shapes.items()]
    found.sort(key=lambda e: e.chi_square)
    # Errors that the likeliest explanation shows to be too small widen every interval.
    wider = math.sqrt(max(1.0, found[0].chi_square / dof))
    return StepChange(tuple(_widen(e, wider) for e in found), dof)


def _fit(kind: Kind, shape: NDArray[np.float64], delta: NDArray[np.float64]) -> Explanation:
    weight = float(shape @ shape)
    amount = float(shape @ delta) / weight
    half = float(ndtri(0.975)) / math.sqrt(weight)
    squares = float(np.sum((delta - amount * shape) ** 2))
    return Explanation(kind, amount, amount - half, amount + half, squares)


def _widen(one: Explanation, factor: float) -> Explanation:
    half = factor * (one.high - one.amount)
    return Explanation(one.kind, one.amount, one.amount - half, one.amount + half, one.chi_square)
