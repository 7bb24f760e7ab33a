"""Step time against concurrency: the fitted law, and what any honest sweep has to obey."""

from perfgate.scaling.law import ScalingError, ScalingLaw, expert_coverage, fit
from perfgate.scaling.laws import Finding, ScalingBounds, SweepPoint, consistency

__all__ = [
    "Finding",
    "ScalingBounds",
    "ScalingError",
    "ScalingLaw",
    "SweepPoint",
    "consistency",
    "expert_coverage",
    "fit",
]
