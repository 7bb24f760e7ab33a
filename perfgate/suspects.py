"""What to look at where all points moved alike: the fingerprint, clocks and throttling of a run, in words (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfgate.result import PointResult

LOOKED_AT = (
    ("hardware", "gpu_driver"),
    ("hardware", "gpu_power_cap_w"),
    ("hardware", "cpu"),
    ("software", "sglang"),
    ("software", "torch"),
)
"""Fields that a machine's speed most often follows."""


def suspects(
    fingerprint: Mapping[str, Any], differences: Sequence[str], points: Sequence[PointResult]
) -> dict[str, str]:
    """Notes for ``run_verdict``: what of the ``fingerprint`` differs from the baseline's, or which fields do not, and the
    clocks (MHz) at which the counted samples ran, with the highest that the GPU has."""
    found: dict[str, str] = {}
    if differences:
        found["fingerprint"] = f"differs in {', '.join(differences)}"
    else:
        known = {key: fingerprint.get(part, {}).get(key) for part, key in LOOKED_AT}
        named = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
        if named:
            found["fingerprint"] = f"is the baseline's, with {named}"
    counted = [s for p in points for s in p.samples if s.counted]
    clocks = [c for s in counted for c in (s.clock_mhz, s.clock_low_mhz) if c is not None]
    if clocks:
        top = fingerprint.get("hardware", {}).get("gpu_max_sm_mhz")
        most = f" of at most {top}" if top is not None else ""
        found["SM clock"] = f"was {min(clocks)} to {max(clocks)} MHz{most}"
    reasons = sorted({reason for s in counted for reason in s.throttle})
    if reasons:
        found["throttled"] = f"by {', '.join(reasons)}"
    return found
