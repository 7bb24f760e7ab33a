"""step(N) = a + b*N, and for a mixture of experts a + e*E(N) + b*N, fitted by weighted least squares.

a: what every step costs (launches, communication, dense weights), ms. e: cost of one expert's weights, ms an expert.
b: cost of one more request that no batch amortises, ms a request. E(N): experts that N requests touch in one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit
from scipy.stats import chi2

LEAST_NOISE = 0.0005
"""Relative noise assumed of a step time that comes with none: half of the quietest that the field reports (0.1 %)."""

DOF_TO_TEST = 2
"""Degrees of freedom from which a residual says anything: four points for the line, five with experts."""

UNAMORTISED = 4.0
"""A batch that can never give more than this many times the speed of one request does not amortise its cost."""

Experts = tuple[int, int]


class ScalingError(ValueError):
    """Points from which no law can be fitted."""


@dataclass(frozen=True)
class ScalingLaw:
    """A fitted law. Times in ms; ``*_interval`` are 95 %, None where neither noise nor residual gives one.

    ``e`` is None for the line. ``residual_p`` is the left-tail probability of the chi-square of the residuals against
    the points' own noise: near 0 they are too small for a measurement, near 1 too large for the law; None where
    ``dof`` is below 2 (``testable`` is False then). ``misfit`` is the largest relative residual, and ``notes`` say what
    the fit cannot tell.
    """

    a: float
    b: float
    e: float | None
    a_interval: tuple[float, float] | None
    b_interval: tuple[float, float] | None
    e_interval: tuple[float, float] | None
    experts: Experts | None
    dof: int
    residual_p: float | None
    misfit: float
    points: tuple[tuple[float, float, float], ...]
    notes: tuple[str, ...] = ()

    @property
    def testable(self) -> bool:
        """True where the residual can say something."""
        return self.residual_p is not None

    @property
    def asymptote(self) -> float:
        """Output tokens/s that no batch size exceeds: 1000/b; inf where b is not above zero."""
        return 1000 / self.b if self.b > 0 else math.inf

    @property
    def asymptote_interval(self) -> tuple[float, float] | None:
        """95 % interval of the asymptote, its upper end inf where b may be zero."""
        if self.b_interval is None:
            return None
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
        surely = self.b_interval is None or self.b_interval[0] > 0
        if self.b > 0 and surely and single / self.b < UNAMORTISED:
            said.append(
                f"a cost per request that no batch amortises: {self.b:.3g} ms of each step for every request, so "
                f"{self.asymptote:.4g} tok/s at most, {single / self.b:.2g} times the speed of one request"
            )
        elif self.b > 0:
            said.append(f"{self.b:.3g} ms a request on {self.a:.3g} ms a step: at most {self.asymptote:.4g} tok/s")
        else:
            said.append(f"no cost per request is seen (b = {self.b:.3g} ms): the sweep ends too early to show a limit")
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


def fit(points: Sequence[tuple[float, float, float]], experts: Experts | None = None) -> ScalingLaw:
    """Fit the law to ``(n, step_ms, sd_ms)``: requests in a step, step time and the standard deviation of that figure.

    ``experts`` is (total, top-k) of a mixture of experts. Where ``sd_ms`` is 0, LEAST_NOISE stands in. Raises
    ScalingError with fewer than 2 different n (3 with experts fall back on the line, which ``notes`` say).
    """
    rows = tuple((float(n), float(step), float(sd)) for n, step, sd in points)
    for n, step, sd in rows:
        if not (n > 0 and step > 0 and sd >= 0 and math.isfinite(n + step + sd)):
            raise ScalingError(f"a point needs n > 0, step_ms > 0 and sd_ms >= 0, all finite; got {(n, step, sd)}")
    different = len({n for n, _, _ in rows})
    if different < 2:
        raise ScalingError(f"a law needs step times at 2 or more concurrencies, got {different}")
    notes: list[str] = []
    used = experts
    if experts is not None and different < 3:
        notes.append("experts are left out: with 2 concurrencies their cost cannot be told from the cost per request")
        used = None
    size = np.array([r[0] for r in rows])
    y = np.array([r[1] for r in rows])
    noise = np.array([max(r[2], LEAST_NOISE * r[1]) for r in rows])
    columns = [np.ones_like(size), size]
    if used is not None:
        columns.insert(1, np.array([expert_coverage(v, used) for v in size.tolist()]))
    design = np.column_stack(columns)
    values, covariance = _solve(design, y, noise)
    residuals = y - design @ values
    squares = float(np.sum((residuals / noise) ** 2))
    dof = len(rows) - design.shape[1]
    ends = _intervals(values, covariance, squares, dof)
    if used is not None and values[1] < 0:
        notes.append(f"e is negative ({values[1]:.3g} ms an expert): these points do not show the experts' cost")
    return ScalingLaw(
        a=float(values[0]),
        b=float(values[-1]),
        e=float(values[1]) if used is not None else None,
        a_interval=ends[0],
        b_interval=ends[-1],
        e_interval=ends[1] if used is not None else None,
        experts=used,
        dof=dof,
        residual_p=float(chi2.cdf(squares, dof)) if dof >= DOF_TO_TEST else None,
        misfit=float(np.max(np.abs(residuals / y))),
        points=rows,
        notes=tuple(notes),
    )


def _solve(
    design: NDArray[np.float64], y: NDArray[np.float64], sd: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    weighted = design / sd[:, None]
    inverse = np.linalg.pinv(weighted)
    return inverse @ (y / sd), inverse @ inverse.T


def _intervals(
    values: NDArray[np.float64], covariance: NDArray[np.float64], squares: float, dof: int
) -> list[tuple[float, float]]:
    # Residuals larger than the points' own noise mean that the law is only nearly right: they widen the interval.
    scale = math.sqrt(squares / dof) if dof > 0 else 1.0
    factor = float(stdtrit(dof, 0.975)) * scale if dof > 0 and scale > 1 else float(ndtri(0.975))
    halves = factor * np.sqrt(np.diag(covariance))
    return [(float(v - h), float(v + h)) for v, h in zip(values, halves, strict=True)]
