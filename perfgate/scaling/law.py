"""step(N) = a + b*N, and for a mixture of experts a + e*E(N) + b*N, fitted by weighted least squares.

a: what every step costs (launches, communication, dense weights), ms. e: cost of one expert's weights, ms an expert.
b: cost of one more request that no batch amortises, ms a request. E(N): experts that N requests touch in one step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f

from perfgate.scaling.sweep import Noise, SweepPoint, noise
from perfgate.stats import quantile

DOF_TO_TEST = 2
"""Degrees of freedom from which a residual says anything: four points for the line, five with experts."""

POINTS_TO_FIT = {False: 2, True: 4}
"""Concurrencies from which the line, and the law with experts, is fitted. Three would fit the latter exactly, and then a
tile or a graph size that costs more at one of them passes for the cost of an expert."""

UNAMORTISED = 4.0
"""A batch that can never give more than this many times the speed of one request does not amortise its cost."""

Experts = tuple[int, int]
Ends = tuple[float, float]
Term = Literal["a", "b", "e"]


class ScalingError(ValueError):
    """Points from which no law can be fitted."""


@dataclass(frozen=True)
class ScalingLaw:
    """A fitted law. Times in ms; ``*_interval`` are 95 %.

    ``e`` is None for the line. ``residual_p`` is the left-tail probability of the chi-square of the residuals against
    the points' own noise: near 0 they are too small for a measurement. ``excess_p`` is the right-tail probability (F, since
    that noise is estimated): near 0 they are too large for the law. Both are None where ``dof`` is below 2 (``testable`` is
    False then). ``misfit`` is the largest relative residual, and ``notes`` say what the fit cannot tell. ``errors`` are
    standard errors of a, b and e, from noise known to ``noise_dof`` degrees of freedom; ``scale`` is by how much the
    residuals exceed it.
    """

    a: float
    b: float
    e: float | None
    errors: Mapping[str, float]
    noise_dof: float
    scale: float
    experts: Experts | None
    dof: int
    residual_p: float | None
    excess_p: float | None
    misfit: float
    points: tuple[tuple[float, float, float], ...]
    notes: tuple[str, ...] = ()

    @property
    def a_interval(self) -> Ends:
        return self.ends("a")

    @property
    def b_interval(self) -> Ends:
        return self.ends("b")

    @property
    def e_interval(self) -> Ends | None:
        return self.ends("e") if self.e is not None else None

    def ends(self, name: Term, p: float = 0.975) -> Ends:
        """Interval of a term that noise leaves with probability 1 - ``p`` on either side.

        Residuals larger than the noise mean that the law is only nearly right: they widen it.
        """
        value = getattr(self, name)
        factor = quantile(p, self.noise_dof)
        if self.dof > 0 and self.scale > 1:
            factor = max(factor, quantile(0.975, self.dof) * self.scale)
        half = factor * self.errors[name]
        return value - half, value + half

    @property
    def testable(self) -> bool:
        """True where the residual can say something."""
        return self.residual_p is not None

    @property
    def asymptote(self) -> float:
        """Output tokens/s that no batch size exceeds: 1000/b; inf where b is not above zero."""
        return 1000 / self.b if self.b > 0 else math.inf

    @property
    def asymptote_interval(self) -> Ends:
        """95 % interval of the asymptote, its upper end inf where b may be zero."""
        low, high = self.b_interval
        return (1000 / high if high > 0 else math.inf, 1000 / low if low > 0 else math.inf)

    def predict(self, n: float) -> float:
        """Step time at ``n`` requests, ms."""
        covered = expert_coverage(n, self.experts) if self.e is not None and self.experts else 0.0
        return self.a + (self.e or 0.0) * covered + self.b * n

    def speedup(self, n: float) -> float:
        """Throughput at ``n`` requests over that at one, by the law."""
        return n * self.predict(1) / self.predict(n)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """What the law says about the server, one sentence each; the first is about the cost per request."""
        said: list[str] = []
        single = self.predict(1)
        low, high = self.b_interval
        if low > 0 and single / self.b < UNAMORTISED:
            said.append(
                f"a cost per request that no batch amortises: {self.b:.3g} ms of each step for every request, so "
                f"{self.asymptote:.4g} tok/s at most, {single / self.b:.2g} times the speed of one request"
            )
        elif low > 0:
            said.append(f"{self.b:.3g} ms a request on {self.a:.3g} ms a step: at most {self.asymptote:.4g} tok/s")
        else:
            said.append(
                f"no cost per request is seen (b = {self.b:.3g} ms, 95 % interval {low:.3g} to {high:.3g}): these points do "
                "not show a limit"
            )
        if not self.testable:
            said.append(
                f"not testable with so few points: degrees of freedom {self.dof}, {DOF_TO_TEST} or more are needed"
            )
        return (*said, *self.notes)


def expert_coverage(n: float, experts: Experts) -> float:
    """Experts touched in one step of ``n`` requests when each picks ``topk`` of ``total`` evenly.

    E(N) = total*(1-(1-topk/total)^N): 6, 81, 200 of 256 at N = 1, 16, 64 with top-6.
    """
    total, topk = experts
    if not 0 < topk <= total:
        raise ScalingError(f"experts must be (total, topk) with 0 < topk <= total, got {experts}")
    return float(total * (1 - (1 - topk / total) ** n))


def fit(points: Sequence[tuple[int, float, float]], experts: Experts | None = None) -> ScalingLaw:
    """Fit the law to ``(n, step_ms, sd_ms)``: requests in a step, step time and the known standard error of that figure.

    ``experts`` is (total, top-k) of a mixture of experts. Where ``sd_ms`` is 0, LEAST_NOISE stands in. Raises
    ScalingError with fewer different n than POINTS_TO_FIT.
    """
    return fit_sweep([SweepPoint(n, step, sd) for n, step, sd in points], experts)


def fit_sweep(points: Sequence[SweepPoint], experts: Experts | None = None) -> ScalingLaw:
    """The same from points whose standard errors come from a few samples each. Raises ScalingError, also where no point
    has two samples."""
    rows = [(float(p.concurrency), float(p.step_ms), float(p.sd_ms)) for p in points]
    for n, step, sd in rows:
        if not (n > 0 and step > 0 and sd >= 0 and math.isfinite(n + step + sd)):
            raise ScalingError(f"a point needs n > 0, step_ms > 0 and sd_ms >= 0, all finite; got {(n, step, sd)}")
    different, wanted = len({n for n, _, _ in rows}), POINTS_TO_FIT[experts is not None]
    if different < wanted:
        alone = "" if experts is None else " to tell the experts' cost from the cost per request"
        raise ScalingError(f"a law needs step times at {wanted} or more concurrencies{alone}, got {different}")
    seen = noise(points)
    if seen is None:
        raise ScalingError("a law needs two samples at a point at least, to know their noise")
    return _fitted(rows, seen, experts)


def _fitted(rows: list[tuple[float, float, float]], seen: Noise, experts: Experts | None) -> ScalingLaw:
    size = np.array([r[0] for r in rows])
    y = np.array([r[1] for r in rows])
    columns = [np.ones_like(size), size]
    if experts is not None:
        columns.append(np.array([expert_coverage(v, experts) for v in size.tolist()]))
    design = np.column_stack(columns)
    most = np.array(seen.most)
    values, covariance = _solve(design, y, most)
    residuals = y - design @ values
    dof = len(rows) - design.shape[1]
    squares = float(np.sum((residuals / most) ** 2))
    least_squares = float(np.sum((residuals / np.array(seen.least)) ** 2))
    testable = dof >= DOF_TO_TEST
    notes = []
    if experts is not None and values[2] < 0:
        notes.append(f"e is negative ({values[2]:.3g} ms an expert): these points do not show the experts' cost")
    return ScalingLaw(
        a=float(values[0]),
        b=float(values[1]),
        e=float(values[2]) if experts is not None else None,
        errors=dict(zip(("a", "b", "e"), np.sqrt(np.diag(covariance)).tolist(), strict=False)),
        noise_dof=seen.dof,
        scale=math.sqrt(squares / dof) if dof > 0 else 1.0,
        experts=experts,
        dof=dof,
        residual_p=float(chi2.cdf(least_squares, dof)) if testable else None,
        excess_p=_excess(squares, dof, seen.dof) if testable else None,
        misfit=float(np.max(np.abs(residuals / y))),
        points=tuple(rows),
        notes=tuple(notes),
    )


def _excess(squares: float, dof: int, noise_dof: float) -> float:
    return float(chi2.sf(squares, dof) if math.isinf(noise_dof) else f.sf(squares / dof, dof, noise_dof))


def _solve(
    design: NDArray[np.float64], y: NDArray[np.float64], sd: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    weighted = design / sd[:, None]
    inverse = np.linalg.pinv(weighted)
    return inverse @ (y / sd), inverse @ inverse.T
