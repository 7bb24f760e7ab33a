"""One sample is one run of SGLang's own serving benchmark client at one concurrency."""

from perfgate.workload.plan import Plan
from perfgate.workload.sample import Sample, SampleError, read_sample

__all__ = ["Plan", "Sample", "SampleError", "read_sample"]
