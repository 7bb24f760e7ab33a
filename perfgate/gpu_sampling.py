"""Clocks, power and throttling of the GPUs while a sample runs: a thread that reads, and a pure reducer."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perfgate.gpu import GpuError, handles

PERIOD_SECONDS = 0.2

THROTTLE_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons that slow a busy GPU down. Idle, application clocks and display do not count."""

POWER_CAP = 0x04
UNTOUCHED = "power cap, clock at its highest"
"""What a power cap is called whose readings show no lower clock: a load that comes near the limit on any day, not a fault."""

BUSY_PERCENT = 10
EDGE = 10
"""Busy readings at each end that show where a clock began and where it ended (fewer in a short sample: a quarter)."""


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment."""

    at: float
    gpu: int
    sm_mhz: int
    power_w: float
    temperature_c: int
    reasons: int
    busy_percent: int = 100
    top_sm_mhz: int | None = None
    """The highest clock that this GPU has, where the driver says so."""

    def held_back_by(self) -> Iterator[str]:
        """The reasons that this reading shows."""
        at_top = self.top_sm_mhz is not None and self.sm_mhz >= self.top_sm_mhz
        for bit, name in THROTTLE_REASONS.items():
            if self.reasons & bit:
                yield UNTOUCHED if bit == POWER_CAP and at_top else name


@dataclass(frozen=True)
class GpuWindow:
    """One GPU over one sample. Clocks are of busy readings alone: an idle GPU clocks down, and that says nothing."""

    gpu: int
    readings: int
    busy_readings: int
    median_sm_mhz: int | None
    lowest_sm_mhz: int | None
    drift: float | None
    """Median clock of the last busy readings over that of the first, less 1: -0.15 where it fell by 15 %. None with fewer
    than 8 busy readings."""
    median_power_w: float
    hottest_c: int
    throttled: tuple[tuple[str, float], ...]
    """Reasons with the share of busy readings that showed them."""


def summarise(readings: Sequence[Reading]) -> tuple[GpuWindow, ...]:
    """Reduce readings to one row a GPU, in order of their numbers (pure)."""
    rows = []
    for gpu in sorted({r.gpu for r in readings}):
        own = [r for r in readings if r.gpu == gpu]
        busy = [r for r in own if r.busy_percent >= BUSY_PERCENT]
        clocks = [r.sm_mhz for r in busy]
        shares = Counter(name for r in busy for name in r.held_back_by())
        rows.append(
            GpuWindow(
                gpu,
                len(own),
                len(busy),
                round(statistics.median(clocks)) if clocks else None,
                min(clocks) if clocks else None,
                _drift(clocks),
                statistics.median(r.power_w for r in own),
                max(r.temperature_c for r in own),
                tuple(
                    (name, shares[name] / len(busy)) for name in (*THROTTLE_REASONS.values(), UNTOUCHED) if shares[name]
                ),
            )
        )
    return tuple(rows)


def _drift(clocks: Sequence[int]) -> float | None:
    edge = min(EDGE, len(clocks) // 4)
    if edge < 2:
        return None
    return statistics.median(clocks[-edge:]) / statistics.median(clocks[:edge]) - 1


def throttle_reasons(windows: Sequence[GpuWindow], share: float = 0.1) -> tuple[str, ...]:
    """Reasons that at least ``share`` of a GPU's busy readings showed, as ``Sample.throttle_reasons`` holds them."""
    return tuple(f"GPU {w.gpu}: {name} ({part:.0%})" for w in windows for name, part in w.throttled if part >= share)


class GpuSampler:
    """Reads all GPUs every PERIOD_SECONDS between ``with`` and its end; ``windows()`` sums up afterwards.

    A reading that fails ends the thread; ``windows()`` then raises GpuError, so that no sample passes unwatched.
    """

    def __init__(self, nvml: Any, period: float = PERIOD_SECONDS) -> None:
        self._nvml, self._period = nvml, period
        self._devices = handles(nvml)
        self._readings: list[Reading] = []
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read_until_stopped, name="gpu-sampler", daemon=True)

    def __enter__(self) -> GpuSampler:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join()

    def windows(self) -> tuple[GpuWindow, ...]:
        """One row a GPU. Raises GpuError where the driver stopped answering or nothing was read."""
        if self._failure is not None:
            raise GpuError(f"the GPUs could not be watched during the sample: {self._failure}")
        if not self._readings:
            raise GpuError("the sample ended before the GPUs were read once")
        return summarise(self._readings)

    def _read_until_stopped(self) -> None:
        while not self._stop.is_set():
            try:
                self._readings += [read(self._nvml, i, device) for i, device in enumerate(self._devices)]
            except self._nvml.NVMLError as error:
                self._failure = error
                return
            self._stop.wait(self._period)


def read(nvml: Any, index: int, device: Any) -> Reading:
    """One reading of one GPU. Raises NVML's error."""
    return Reading(
        time.time(),
        index,
        nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetPowerUsage(device) / 1000,
        nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
        nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device),
        nvml.nvmlDeviceGetUtilizationRates(device).gpu,
        nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM),
    )
