"""What a kernel's time depends on beside the kernel: the card, its driver and clocks, torch and triton (edge).

By NVML where nvidia-ml-py is installed, else by nvidia-smi.
"""

from __future__ import annotations

import contextlib
import csv
import io
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from perfgate.gpu import GpuError, open_nvml
from perfgate.gpu_sampling import THROTTLE_REASONS

PACKAGES = ("torch", "triton", "sgl-kernel", "sglang-kernel", "sgl-deep-gemm", "sglang")
QUERY = "name,uuid,driver_version,power.limit,clocks.max.sm,memory.total"
STATE = "clocks.sm,clocks_event_reasons.active,power.draw,temperature.gpu"
READINGS = 3


@dataclass(frozen=True)
class State:
    """The card while it replayed a kernel: lowest SM clock in MHz, reasons of throttling, and how they were read."""

    sm_mhz: int | None
    throttled: tuple[str, ...] = ()
    power_w: float | None = None
    temperature_c: int | None = None
    read_by: str = "nothing"


def reasons(bits: int) -> tuple[str, ...]:
    """The names of NVML's clock event reasons that slow a busy GPU down."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


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
        **_limits(_uuid(properties)),
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


def watch(busy: Callable[[float], None], index: int = 0, run: Callable[..., Any] = subprocess.run) -> State:
    """Read clocks and throttling while ``busy(seconds)``, which only queues work, keeps the GPU at it."""
    import torch

    uuid = _uuid(torch.cuda.get_device_properties(index))
    nvml = _nvml()
    state = None
    if nvml is not None:
        busy(0.02)
        with contextlib.suppress(nvml.NVMLError):
            state = _by_nvml(nvml, uuid)
    if state is None:
        # nvidia-smi takes a tenth of a second to start.
        busy(0.4)
        state = _by_smi(uuid, run)
    torch.cuda.synchronize(index)
    return state


def _nvml() -> Any:
    try:
        return open_nvml()
    except GpuError:
        # Not installed, or no library beside the driver: nvidia-smi is asked instead.
        return None


def _by_nvml(nvml: Any, uuid: str) -> State:
    device = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    clocks, bits = [], 0
    for _ in range(READINGS):
        clocks.append(nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM))
        bits |= nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
    power = nvml.nvmlDeviceGetPowerUsage(device) / 1000
    heat = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
    return State(min(clocks), reasons(bits), power, heat, "NVML")


def _by_smi(uuid: str, run: Callable[..., Any]) -> State:
    row = _ask(STATE, uuid, run)
    if row is None:
        return State(None)
    return parse_state(row)


def parse_state(row: Sequence[str]) -> State:
    """One row of nvidia-smi's answer to STATE; what it does not tell is None."""
    clock, bits, power, heat = (cell.strip() for cell in row)
    return State(
        int(clock) if clock.isdigit() else None,
        reasons(int(bits, 16)) if bits.lower().startswith("0x") else (),
        float(power) if power.replace(".", "", 1).isdigit() else None,
        int(heat) if heat.isdigit() else None,
        "nvidia-smi",
    )


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
    command = ["nvidia-smi", f"--id={uuid}", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    try:
        done = run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    rows = [row for row in csv.reader(io.StringIO(done.stdout)) if row]
    return rows[0] if done.returncode == 0 and len(rows) == 1 and len(rows[0]) == what.count(",") + 1 else None


def _uuid(properties: Any) -> str:
    return f"GPU-{properties.uuid}"
