"""Runs of the kernel benchmark as they are stored, with made-up times."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from perfgate.kernelbench.rows import Run, run_from
from perfgate.kernelbench.shapes import DecodeShape, HcShape, Shape, describe

DECODE, HC = DecodeShape(64, 64, 128, 512), HcShape(1)
FINGERPRINT = {
    "hardware": {"gpus": 1, "gpu_name": "NVIDIA H200", "gpu_power_cap_w": 700, "gpu_max_sm_mhz": 1980},
    "software": {"torch": "2.11.0", "triton": "3.6.0", "cuda": "13.0", "sgl-kernel": "0.4.4"},
}
RATES = {"bytes": 4.2e12, "bf16": 7e14, "fp8": 1.3e15, "tf32": 4e14, "floor_us": 2.1, "source": "made up"}


def stored(
    times: Mapping[tuple[Shape, str], float],
    *,
    seed: int = 0,
    noise: float = 0.004,
    quick: bool = False,
    fingerprint: Mapping[str, Any] = FINGERPRINT,
    throttled: tuple[str, ...] = (),
    noted: tuple[str, ...] = (),
    mhz: int | None = 1980,
    top_mhz: int | None = 1980,
    rates: Mapping[str, Any] = RATES,
    **facts: Any,
) -> dict[str, Any]:
    """The content of the file of a run whose median times in microseconds are about these.

    ``facts``: what else the run says of itself (asked, partial, wrong, sources).
    """
    rng = random.Random(seed)
    benchmarks = [
        {
            "fullname": f"test_speed[{shape.key}-{name}]",
            "extra_info": {
                "shape": describe(shape),
                "implementation": name,
                "label": name,
                "checked": "the references",
                "blocks": [at // 20 for at in range(60)],
                "sm_mhz": mhz,
                "top_mhz": top_mhz,
                "throttled": list(throttled),
                "noted": list(noted),
            },
            "stats": {"data": [us * 1e-6 * rng.gauss(1, noise) for _ in range(60)]},
        }
        for (shape, name), us in times.items()
    ]
    machine = {"fingerprint": dict(fingerprint), "rates": dict(rates), "quick": quick, **facts}
    return {
        "machine_info": {"kernelbench": machine},
        "benchmarks": benchmarks,
        "datetime": "2026-11-30T09:00:00+00:00",
        "commit_info": {"id": "abc123"},
    }


def run(times: Mapping[tuple[Shape, str], float], **options: Any) -> Run:
    return run_from(stored(times, **options))


def ours(decode_us: float, hc_us: float = 9.0, **options: Any) -> Run:
    """A run of our decode and pre-norm."""
    return run({(DECODE, "ours"): decode_us, (HC, "ours"): hc_us}, **options)
