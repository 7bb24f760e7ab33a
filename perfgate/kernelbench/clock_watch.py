"""Clocks and throttling of a GPU while it replays a kernel (edge): by NVML where nvidia-ml-py is installed, else by nvidia-smi.

An idle GPU's clock says nothing about a time, so work is queued for as long as the reading takes, and a reading counts only
if the GPU was still at it afterwards.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from perfgate.gpu import GpuError, open_nvml
from perfgate.gpu_sampling import UNTOUCHED, Reading
from perfgate.kernelbench.machine import row_of, smi, uuid_of

STATE = "clocks.sm,clocks_event_reasons.active,power.draw,temperature.gpu,clocks.max.sm"
READINGS = 3
TRIES = 2

QUEUED_SECONDS = 0.02
"""How much work is queued at a time: what is left of it when a reading ends shows that the GPU never ran dry."""

SMI_SECONDS = 30.0
"""nvidia-smi answers within a second or two; one that does not in this time is given up."""

Busy = Callable[[float], Callable[[], bool]]
"""Queues about so many seconds of work, and returns whether the GPU is still at it."""


@dataclass(frozen=True)
class State:
    """The card while it replayed a kernel: lowest SM clock and the card's highest in MHz, and how they were read.

    ``throttled``: the driver's reasons that slow a GPU down; ``noted``: a power cap that left the clock at its highest.
    ``sm_mhz`` is None where nothing was read, or where the GPU may have been idle by then.
    """

    sm_mhz: int | None
    throttled: tuple[str, ...] = ()
    power_w: float | None = None
    temperature_c: int | None = None
    read_by: str = "nothing"
    noted: tuple[str, ...] = ()
    top_mhz: int | None = None


def state_of(
    sm_mhz: int, bits: int, power_w: float | None, temperature_c: int | None, top_mhz: int | None, read_by: str
) -> State:
    """One reading; which of NVML's clock event reasons count against a time is the gate's own rule."""
    names = tuple(Reading(0.0, 0, sm_mhz, 0.0, 0, bits, top_sm_mhz=top_mhz).held_back_by())
    counted = tuple(name for name in names if name != UNTOUCHED)
    noted = tuple(name for name in names if name == UNTOUCHED)
    return State(sm_mhz, counted, power_w, temperature_c, read_by, noted, top_mhz)


def worst(states: Sequence[State]) -> State:
    """One state for several moments of the same replays: the lowest clock, and every reason that one of them shows."""
    known = [one for one in states if one.sm_mhz is not None]
    if not known:
        return states[-1] if states else State(None)
    return replace(
        min(known, key=lambda one: one.sm_mhz or 0),
        throttled=tuple(dict.fromkeys(name for one in known for name in one.throttled)),
        noted=tuple(dict.fromkeys(name for one in known for name in one.noted)),
    )


def watch(busy: Busy, index: int = 0, start: Callable[..., Any] = subprocess.Popen) -> State:
    """Read clocks and throttling of a GPU while ``busy`` keeps it at work. Waits for that work to end."""
    import torch

    uuid = uuid_of(torch.cuda.get_device_properties(index))
    nvml = _nvml()
    state = None
    for _ in range(TRIES):
        state = _by_nvml(busy, nvml, uuid) if nvml is not None else None
        state = state or _by_smi(busy, uuid, start)
        if state.sm_mhz is not None:
            break
    torch.cuda.synchronize(index)
    return state or State(None)


def _nvml() -> Any:
    try:
        return open_nvml()
    except GpuError:
        # Not installed, or no library beside the driver: nvidia-smi is asked instead.
        return None


def _fed(busy: Busy, going: Callable[[], bool]) -> bool:
    """Keep the GPU at work while ``going``; whether it still is when that ends."""
    still = busy(QUEUED_SECONDS)
    while going():
        still = busy(QUEUED_SECONDS)
    return still()


def _by_nvml(busy: Busy, nvml: Any, uuid: str) -> State | None:
    """None where NVML does not answer."""
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(_readings, nvml, uuid)
        at_work = _fed(busy, lambda: not reading.done())
        try:
            found = reading.result()
        except nvml.NVMLError:
            return None
    return worst(found) if at_work else State(None, read_by="NVML, of a GPU that may have been idle")


def _readings(nvml: Any, uuid: str) -> list[State]:
    device = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    return [
        state_of(
            nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
            nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device),
            nvml.nvmlDeviceGetPowerUsage(device) / 1000,
            nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
            nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM),
            "NVML",
        )
        for _ in range(READINGS)
    ]


def _by_smi(busy: Busy, uuid: str, start: Callable[..., Any]) -> State:
    """nvidia-smi takes a tenth of a second to start: work is queued until it has answered."""
    try:
        asked = start(smi(STATE, uuid), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return State(None)
    until = time.monotonic() + SMI_SECONDS
    at_work = _fed(busy, lambda: asked.poll() is None and time.monotonic() < until)
    if asked.poll() is None:
        asked.kill()
    row = row_of(asked.communicate()[0], STATE)
    if row is None or asked.returncode:
        return State(None)
    return parse_state(row) if at_work else State(None, read_by="nvidia-smi, of a GPU that may have been idle")


def parse_state(row: Sequence[str]) -> State:
    """One row of nvidia-smi's answer to STATE; what it does not tell is None."""
    clock, bits, power, heat, top = (cell.strip() for cell in row)
    if not clock.isdigit() or not bits.lower().startswith("0x"):
        return State(None, read_by="nvidia-smi, which does not tell")
    return state_of(
        int(clock),
        int(bits, 16),
        float(power) if power.replace(".", "", 1).isdigit() else None,
        int(heat) if heat.isdigit() else None,
        int(top) if top.isdigit() else None,
        "nvidia-smi",
    )
