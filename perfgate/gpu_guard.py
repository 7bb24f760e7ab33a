"""A run's hold on its GPUs: locked once, free of strangers and of old memory before each start, watched in samples."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfgate import gpu, gpu_choice
from perfgate.gpu import GpuError
from perfgate.gpu_watch import Watch
from perfgate.recipe import Recipe

MEMORY_SECONDS = 60.0
STRANGER_SECONDS = 10.0
"""How long a process that is not ours may take to leave before it refuses the start: the driver names the server of a run
that has just ended until its memory is unmapped."""
SLACK_MIB = 512
"""Memory that may stay away after a stop: the driver's own, of other contexts' set-up and of ECC."""

Pids = Callable[[], set[int]]


class GpuGuard:
    """One a run, shared by all of its servers. Does nothing for recipes of another device than ``cuda``.

    ``servers`` are functions that give the process ids of each live server of ours, ``helpers`` of what else is ours
    (the client), which computes on no GPU and so says nothing about how the driver counts processes.
    """

    def __init__(
        self,
        recipe: Recipe,
        also: Recipe | None = None,
        *,
        open_nvml: Callable[[], Any] = gpu.open_nvml,
        environment: Mapping[str, str] = os.environ,
        lock_folder: Path | None = None,
        memory_seconds: float = MEMORY_SECONDS,
        stranger_seconds: float = STRANGER_SECONDS,
    ) -> None:
        recipes = [r for r in (recipe, also) if r is not None and r.device == "cuda"]
        self._count = max((gpu_choice.wanted(r) for r in recipes), default=0)
        self._open_nvml, self._environment, self._lock_folder = open_nvml, environment, lock_folder
        self._memory_seconds, self._stranger_seconds = memory_seconds, stranger_seconds
        self._held = contextlib.ExitStack()
        self._nvml: Any = None
        self._locked, self._hold = False, True
        self._free_mib: list[int] = []
        self.servers: list[Pids] = []
        self.helpers: list[Pids] = []

    def __enter__(self) -> GpuGuard:
        return self

    def __exit__(self, *unused: object) -> None:
        self._held.close()
        self._locked = False

    def only_describe(self) -> None:
        """For a server that already runs: its processes are not ours to tell from others, so nothing is refused."""
        self._hold = False

    def watched(self) -> set[int]:
        """All processes of this run."""
        return self.ours() | {pid for pids in self.helpers for pid in pids()}

    @property
    def needed(self) -> bool:
        return self._count > 0

    def ours(self) -> set[int]:
        """The processes of all live servers of this run."""
        return {pid for pids in self.servers for pid in pids()}

    def nvml(self) -> Any:
        """NVML with this run's GPUs alone. Raises GpuError."""
        if self._nvml is None:
            whole = self._open_nvml()
            self._nvml = gpu_choice.Only(whole, gpu_choice.chosen(whole, self._count, self._environment))
        return self._nvml

    def before_start(self) -> None:
        """Lock the GPUs, refuse strangers, and wait for the memory of an earlier server of this run. Raises GpuError."""
        if not (self.needed and self._hold):
            return
        nvml = self.nvml()
        try:
            self._before_start(nvml)
        except nvml.NVMLError as error:
            raise GpuError(f"the driver does not tell what a run must know of its GPUs: {error}") from None

    def _before_start(self, nvml: Any) -> None:
        if not self._locked:
            names = [gpu_choice.uuid(nvml, device) for device in gpu.handles(nvml)]
            self._held.enter_context(gpu.lock_gpus(names, folder=self._lock_folder))
            self._locked = True
        ours = self.ours()
        if not ours and self._free_mib:
            gpu.wait_for_memory(nvml, [max(0, free - SLACK_MIB) for free in self._free_mib], self._memory_seconds)
        self._wait_for_strangers(nvml, ours)
        if not self._free_mib:
            self._free_mib = [nvml.nvmlDeviceGetMemoryInfo(d).free // gpu.MIB for d in gpu.handles(nvml)]
        gpu.describe(nvml)  # what cannot be described cannot be compared: told now, not after the run

    def _wait_for_strangers(self, nvml: Any, ours: set[int]) -> None:
        deadline = time.monotonic() + self._stranger_seconds
        while gpu.foreign(found := gpu.compute_processes(nvml), ours) and time.monotonic() < deadline:
            time.sleep(0.2)
        gpu.refuse_foreign(found, ours)

    def describe(self) -> list[dict[str, Any]]:
        """What the fingerprint holds of each GPU; empty where none is needed or none can be asked (the start says why)."""
        if not self.needed:
            return []
        try:
            nvml = self.nvml()
        except GpuError:
            return []
        with contextlib.suppress(nvml.NVMLError):
            return gpu.describe(nvml)
        return []

    def watch(self) -> Watch | None:
        """A watch over one sample, or None where there is no GPU to watch."""
        return Watch(self.nvml(), self.watched) if self.needed and self._hold else None


@contextlib.contextmanager
def watching(watch: Watch | None) -> Iterator[Watch | None]:
    """Run ``watch`` over a block, where there is one."""
    if watch is None:
        yield None
        return
    with watch:
        yield watch
