"""A stand-in for NVML, with what the suite calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class NvmlError(Exception):
    """NVML's own error."""


class FakeNvml:
    """GPUs of NVML's Python binding. ``processes`` holds (gpu, pid) pairs, ``free`` MiB a GPU."""

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, gpus: int = 1, processes: Any = (), fail_listing_after: int | None = None) -> None:
        self.processes, self.free = list(processes), [100_000] * gpus
        self.listed, self.fail_listing_after = 0, fail_listing_after
        self.reasons = 0

    def nvmlDeviceGetCount(self) -> int:
        return len(self.free)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, device: int) -> bytes:
        return f"GPU-{device}aaa".encode()

    def nvmlDeviceGetName(self, device: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(total=141 * 2**30, free=self.free[device] * 2**20)

    def nvmlDeviceGetEnforcedPowerLimit(self, device: int) -> int:
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, device: int, which: int) -> int:
        return 1980

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13000

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return 50

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:
        self.listed += 1
        if self.fail_listing_after is not None and self.listed > self.fail_listing_after:
            raise NvmlError("GPU is lost")
        return [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for gpu, pid in self.processes if gpu == device]

    def nvmlDeviceGetClockInfo(self, device: int, which: int) -> int:
        return 1755 + device

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        return 412_500 + 1000 * device

    def nvmlDeviceGetTemperature(self, device: int, sensor: int) -> int:
        return 51 + device

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> int:
        return self.reasons

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        return SimpleNamespace(gpu=97)
