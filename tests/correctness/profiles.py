"""How the correctness tests run: compiled or interpreted, and with how many examples. Imported before Triton is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

PARTS = int(os.environ.get("DSV4_PROPERTY_PARTS", "1"))
"""Tests that share out one property's examples, so that several workers can run it."""
DEFAULT = "ci"
# Present wherever a CUDA driver serves this machine (the second: under WSL). Looking costs nothing; torch takes seconds.
_GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))


def choose_engine() -> None:
    """Have Triton interpret kernels where there is no GPU: it reads the variable when kernels are defined."""
    if "triton" not in sys.modules and not any(device.exists() for device in _GPU_DEVICES):
        os.environ["TRITON_INTERPRET"] = "1"


def register() -> None:
    """Register the profiles ci, dev and deep with hypothesis, without loading one."""
    # Interpreted examples take seconds, and how many depends on the machine: no deadlines, no health check of speed.
    health = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    common = {"deadline": None, "suppress_health_check": health, "print_blob": True}
    # ci: what a change must pass, within minutes on 2 cores without a GPU. dev: before a commit. deep: on a GPU.
    settings.register_profile("ci", max_examples=8, phases=(Phase.explicit, Phase.generate), **common)
    settings.register_profile("dev", max_examples=25, **common)
    settings.register_profile("deep", max_examples=-(-500 // PARTS), **common)
