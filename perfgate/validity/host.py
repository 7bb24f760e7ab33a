"""The machine during the sample: the client's CPU, other processes on the GPU, throttling."""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.gpu_sampling import UNTOUCHED
from perfgate.validity.problem import Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.workload import Sample

# NVML's reasons that say that the GPU has nothing to do or does what it was told, not that it is held back.
_HARMLESS = ("none", "gpu_idle", "gpuidle", "idle", "applications_clocks_setting", "0x0000000000000000", "not active")


def check_host(sample: Sample, limits: Limits) -> Iterator[Problem]:
    """A client at its limit (``client_cpu_share`` of one core), foreign GPU processes, throttle reasons."""
    share = sample.client_cpu_share
    if share is not None and not share < limits.client_cpu:
        message = f"the client used {share:.0%} of a core: it, and not the server, set the pace"
        yield problem(Kind.CLIENT_BOUND, message, [f"client_cpu_share {share:.2f}"])
    if sample.foreign_pids:
        pids = [f"pid {pid}" for pid in sample.foreign_pids]
        yield problem(Kind.FOREIGN_PROCESS, f"{len(pids)} foreign processes used the GPU", pids)
    reasons = [r for r in sample.throttle_reasons if r.strip().lower() not in _HARMLESS]
    slowed = [r for r in reasons if UNTOUCHED not in r]
    clocks = [f"clocks {min(sample.clocks_mhz)} to {max(sample.clocks_mhz)} MHz"] if sample.clocks_mhz else []
    if slowed:
        yield problem(Kind.THROTTLED, "the GPU was throttled", [*slowed, *clocks])
    elif reasons:
        yield problem(
            Kind.THROTTLED, "the GPU was at its power limit, at its highest clock", [*reasons, *clocks], invalid=False
        )
    drift = sample.clock_drift
    if drift is not None and not abs(drift) <= limits.clock_share:
        message = f"the GPU's clock changed by {drift:+.0%} from the first readings of the sample to the last"
        pairs = zip(sample.clocks_mhz, sample.lowest_clocks_mhz, strict=False)
        lowest = [f"median {median} MHz, lowest {low} MHz" for median, low in pairs]
        yield problem(Kind.CLOCKS, message, [*lowest, f"clock_drift {drift:+.3f}"], invalid=False)
