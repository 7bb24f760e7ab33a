"""What was measured where: read, judge against, record, tighten. One file a recipe and hardware; see schema.py."""

from perfgate.baseline.file import BaselineError, BaselineFile, BaselineMissing, load
from perfgate.baseline.model import METRICS, Baseline, Bounds, Metric, MetricBaseline, smoke
from perfgate.baseline.record import Recorded, record

__all__ = [
    "METRICS",
    "Baseline",
    "BaselineError",
    "BaselineFile",
    "BaselineMissing",
    "Bounds",
    "Metric",
    "MetricBaseline",
    "Recorded",
    "load",
    "record",
    "smoke",
]
