"""Step time against concurrency: the fitted law, and what any honest sweep has to obey."""

from perfgate.scaling.change import StepChange, explain_change
from perfgate.scaling.law import ScalingError, ScalingLaw, expert_coverage, fit, fit_sweep
from perfgate.scaling.laws import Finding, ScalingBounds, consistency
from perfgate.scaling.sweep import SweepPoint

__all__ = [
    "Finding",
    "ScalingBounds",
    "ScalingError",
    "ScalingLaw",
    "StepChange",
    "SweepPoint",
    "consistency",
    "expert_coverage",
    "explain_change",
    "fit",
    "fit_sweep",
]
