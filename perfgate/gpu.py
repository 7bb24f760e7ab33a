"""The GPUs of this host: what they are, who computes on them, one lock for each, and memory given back (edge, on NVML).

Every function takes the NVML module, so that a test can pass a stand-in.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate import gpu_links, host_locks

MIB = 2**20


class GpuError(RuntimeError):
    """The GPUs cannot be used as asked; the message says which, why and what to do."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that computes on a GPU, as the driver tells it."""

    gpu: int
    pid: int
    name: str = ""
    memory_mib: int | None = None


def open_nvml() -> Any:
    """The initialised NVML module (nvidia-ml-py). Raises GpuError where the package or the driver is missing."""
    try:
        pynvml = importlib.import_module("pynvml")
    except ImportError:
        raise GpuError("the GPUs cannot be watched without nvidia-ml-py: pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise GpuError(
            f"the NVIDIA driver cannot be asked ({error}): is there a GPU, and is its driver loaded?"
        ) from None
    return pynvml


def handles(nvml: Any) -> list[Any]:
    """Handles of all GPUs, in the driver's order."""
    return [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]


def describe(nvml: Any) -> list[dict[str, Any]]:
    """What a fingerprint holds of each GPU: name, memory, power cap, top clock, driver, CUDA, links to the others."""
    devices = handles(nvml)
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    return [
        {
            "name": _text(nvml.nvmlDeviceGetName(device)),
            "memory_gib": round(nvml.nvmlDeviceGetMemoryInfo(device).total / 2**30),
            "power_cap_w": round(nvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000),
            "max_sm_mhz": nvml.nvmlDeviceGetMaxClockInfo(device, nvml.NVML_CLOCK_SM),
            "driver": driver,
            "cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "topology": links,
        }
        for device, links in zip(devices, gpu_links.topology(nvml, devices), strict=True)
    ]


def compute_processes(nvml: Any) -> list[GpuProcess]:
    """Every process with a compute context. Raises GpuError where the driver does not tell."""
    found = []
    for index, device in enumerate(handles(nvml)):
        try:
            rows = nvml.nvmlDeviceGetComputeRunningProcesses(device)
        except nvml.NVMLError as error:
            raise GpuError(f"GPU {index}: its processes cannot be listed: {error}") from None
        for row in rows:
            memory = row.usedGpuMemory
            found.append(GpuProcess(index, row.pid, _name(row.pid), None if memory is None else memory // MIB))
    return found


QUERY = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name,used_memory", "--format=csv,noheader,nounits")


def compute_processes_by_smi(run: Callable[..., Any] = subprocess.run) -> list[GpuProcess]:
    """The same from nvidia-smi, where nvidia-ml-py is missing. GPUs are numbered as they appear. Raises GpuError."""
    try:
        done = run(QUERY, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GpuError(f"nvidia-smi cannot be run ({error}), so foreign processes cannot be seen") from None
    if done.returncode:
        raise GpuError(f"nvidia-smi failed with {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}")
    return parse_smi(done.stdout)


def parse_smi(text: str) -> list[GpuProcess]:
    """Rows of QUERY's answer. Raises GpuError on a row of another form."""
    order: dict[str, int] = {}
    found = []
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if not row:
            continue
        if len(row) != 4 or not row[1].strip().isdigit():
            raise GpuError(f"nvidia-smi gave a row of another form: {row!r}")
        uuid, pid, name, memory = (cell.strip() for cell in row)
        index = order.setdefault(uuid, len(order))
        found.append(GpuProcess(index, int(pid), name, int(memory) if memory.isdigit() else None))
    return found


def foreign(
    processes: Sequence[GpuProcess], ours: set[int], visible: Callable[[int], bool] | None = None
) -> list[GpuProcess]:
    """Those that are not ours (pure). In a container the driver may tell the host's ids, which name no process here.

    Such ids count as foreign only while none of ours computes (nothing may run then), or where ours appear under the
    ids that we know (then ids are told alike, and an unknown one is somebody else).
    """
    seen = visible or _exists
    ids_agree = not ours or any(p.pid in ours for p in processes)
    return [p for p in processes if p.pid not in ours and (ids_agree or seen(p.pid))]


def refuse_foreign(processes: Sequence[GpuProcess], ours: set[int]) -> None:
    """Raise GpuError naming every process that computes on a GPU and is not ours."""
    strangers = foreign(processes, ours)
    if strangers:
        names = "; ".join(
            f"pid {p.pid} ({p.name or 'unknown'}) on GPU {p.gpu}" + (f", {p.memory_mib} MiB" if p.memory_mib else "")
            for p in strangers
        )
        raise GpuError(f"the GPUs are in use: {names}. End those processes, or measure on GPUs that are free")


@contextlib.contextmanager
def lock_gpus(gpus: Sequence[str], folder: Path | None = None) -> Iterator[None]:
    """Hold one lock a GPU on this host (by UUID or index), taken in one order. Raises GpuError where one is held."""
    with contextlib.ExitStack() as held:
        try:
            base = folder or host_locks.folder()
            for gpu in sorted(set(gpus)):
                path = base / f"gpu-{gpu}.lock"
                number = host_locks.take(path)
                if number is None:
                    raise GpuError(f"GPU {gpu} is locked by another run ({path}); wait for it to end")
                held.callback(host_locks.release, number)
        except host_locks.LockError as error:
            raise GpuError(str(error)) from None
        yield


def wait_for_memory(
    nvml: Any,
    free_mib: Sequence[int],
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until each GPU has at least so much free memory again. Raises GpuError after ``timeout`` seconds."""
    deadline = clock() + timeout
    while True:
        free = [nvml.nvmlDeviceGetMemoryInfo(device).free // MIB for device in handles(nvml)]
        short = [i for i, wanted in enumerate(free_mib) if free[i] < wanted]
        if not short:
            return
        if clock() >= deadline:
            lines = ", ".join(f"GPU {i}: {free[i]} of {free_mib[i]} MiB" for i in short)
            raise GpuError(f"memory was not given back within {timeout:.0f} s: {lines} free; does a server still run?")
        sleep(0.5)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return ""
