"""What a kernel's time depends on beside the kernel and the clock: the card, its driver, torch and triton (edge)."""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Callable
from importlib import metadata
from typing import Any

PACKAGES = ("torch", "triton", "sgl-kernel", "sglang-kernel", "sgl-deep-gemm", "sglang")
QUERY = "name,uuid,driver_version,power.limit,clocks.max.sm,memory.total"


def fingerprint(index: int = 0) -> dict[str, Any]:
    """``hardware`` and ``software`` as perfgate.fingerprint has them, of one GPU."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    hardware: dict[str, Any] = {
        "gpus": 1,
        "gpu_name": properties.name,
        "gpu_memory_gib": round(properties.total_memory / 2**30),
        "gpu_sms": properties.multi_processor_count,
        "gpu_capability": f"{properties.major}.{properties.minor}",
        **_limits(uuid_of(properties)),
    }
    software: dict[str, Any] = {"cuda": torch.version.cuda}
    for name in PACKAGES:
        try:
            software[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    # An image's torch may have no metadata; its own word then.
    software.setdefault("torch", torch.__version__)
    return {"hardware": hardware, "software": software}


def _limits(uuid: str) -> dict[str, Any]:
    row = _ask(QUERY, uuid, subprocess.run)
    if row is None:
        return {}
    _, _, driver, power, clock, _ = (cell.strip() for cell in row)
    found: dict[str, Any] = {"gpu_driver": driver}
    if power.replace(".", "", 1).isdigit():
        found["gpu_power_cap_w"] = round(float(power))
    if clock.isdigit():
        found["gpu_max_sm_mhz"] = int(clock)
    return found


def _ask(what: str, uuid: str, run: Callable[..., Any]) -> list[str] | None:
    """The one row about this GPU, or None where nvidia-smi is missing or answers otherwise."""
    try:
        done = run(smi(what, uuid), capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return row_of(done.stdout, what) if done.returncode == 0 else None


def smi(what: str, uuid: str) -> list[str]:
    """The command that asks nvidia-smi about one GPU."""
    return ["nvidia-smi", f"--id={uuid}", f"--query-gpu={what}", "--format=csv,noheader,nounits"]


def row_of(answer: str, what: str) -> list[str] | None:
    """Its answer's one row, or None where it answered otherwise."""
    rows = [row for row in csv.reader(io.StringIO(answer)) if row]
    return rows[0] if len(rows) == 1 and len(rows[0]) == what.count(",") + 1 else None


def uuid_of(properties: Any) -> str:
    """The name by which NVML and nvidia-smi know the GPU of torch's device properties."""
    return f"GPU-{properties.uuid}"
