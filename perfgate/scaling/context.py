"""Step time against real context: two straight lines that meet at a knee, and their slopes with intervals.

step(c) = a + s1*min(c, knee) + s2*max(c - knee, 0), c in tokens. Up to 2,048 tokens DeepSeek-V4's decode reads all of the
rows that are compressed 4:1 (512 of them); beyond, the indexer still scores all of them and the decode reads 512.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfgate.scaling.law import ScalingError
from perfgate.scaling.sweep import LEAST_NOISE
from perfgate.stats import quantile

Interval = tuple[float, float]


@dataclass(frozen=True)
class ContextLaw:
    """A fitted law: ``step_ms`` at no context, slopes in us per 1,000 tokens of context, 95 % intervals.

    ``above`` is None where no length lies beyond the knee. ``misfit`` is the largest relative residual of a length.
    """

    step_ms: float
    below: float
    below_interval: Interval
    above: float | None
    above_interval: Interval | None
    knee: float
    misfit: float


def fit(readings: Mapping[float, Sequence[float]], knee: float) -> ContextLaw:
    """Fit step times in ms, two or more a length, to mean context lengths in tokens.

    Each interval is the wider of two: from the repeats' own spread (pooled over lengths, relative), and from how far the
    lengths lie off the lines, so that neither a law that is only nearly right nor noisy repeats look sure. Raises
    ScalingError with fewer than three lengths, too few on either side of the knee, or fewer than two repeats.
    """
    lengths = np.array(sorted(readings), dtype=float)
    _enough(readings, knee)
    means = np.array([np.mean(readings[n]) for n in sorted(readings)])
    counts = np.array([len(readings[n]) for n in sorted(readings)])
    squares = sum(
        float(np.sum((np.asarray(readings[n]) / m - 1) ** 2)) for n, m in zip(sorted(readings), means, strict=True)
    )
    freedom = int(counts.sum()) - len(counts)
    noise = max(math.sqrt(squares / freedom), LEAST_NOISE) * means / np.sqrt(counts)
    columns = [np.ones_like(lengths), np.minimum(lengths, knee)]
    bent = bool(lengths.max() > knee)
    if bent:
        columns.append(np.maximum(lengths - knee, 0.0))
    design = np.column_stack(columns)
    inverse = np.linalg.pinv(design / noise[:, None])
    values = inverse @ (means / noise)
    errors = np.sqrt(np.diag(inverse @ inverse.T))
    residuals = means - design @ values
    left = len(lengths) - design.shape[1]
    factor = quantile(0.975, freedom)
    if left > 0:
        scale = math.sqrt(float(np.sum((residuals / noise) ** 2)) / left)
        factor = max(factor, quantile(0.975, left) * scale)
    ends = [(float(v - factor * e) * 1e6, float(v + factor * e) * 1e6) for v, e in zip(values, errors, strict=True)]
    return ContextLaw(
        step_ms=float(values[0]),
        below=float(values[1]) * 1e6,
        below_interval=ends[1],
        above=float(values[2]) * 1e6 if bent else None,
        above_interval=ends[2] if bent else None,
        knee=knee,
        misfit=float(np.max(np.abs(residuals / means))),
    )


def _enough(readings: Mapping[float, Sequence[float]], knee: float) -> None:
    if any(len(steps) < 2 or not all(0 < s < math.inf for s in steps) for steps in readings.values()):
        raise ScalingError("each context length needs two finite step times above 0 or more")
    below = sum(length <= knee for length in readings)
    if len(readings) < 3 or below < 2:
        raise ScalingError(
            f"slopes need three context lengths or more, two of them up to {knee:g} tokens; got {sorted(readings)}"
        )
