"""What the GPUs did while one sample ran: clocks, throttling, and processes that are not ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfgate.gpu import GpuError, compute_processes, foreign
from perfgate.gpu_sampling import GpuSampler, throttle_reasons

PERIOD_SECONDS = 1.0
"""How often the processes are listed: each list is a driver call a GPU."""


@dataclass(frozen=True)
class Seen:
    """One sample's GPUs. ``clocks_mhz`` is each GPU's median while it was busy, ``lowest_clocks_mhz`` its least;
    ``clock_readings`` counts the busy readings of the GPU that has fewest, ``clock_drift`` is the change from the first to
    the last of them where it is largest; ``power_w`` is each GPU's median and ``hottest_c`` its highest temperature;
    ``strangers`` are words for each pid."""

    clocks_mhz: tuple[int, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    foreign_pids: tuple[int, ...] = ()
    strangers: tuple[str, ...] = ()
    failure: str | None = None
    lowest_clocks_mhz: tuple[int, ...] = ()
    clock_readings: int | None = None
    clock_drift: float | None = None
    power_w: tuple[float, ...] = ()
    hottest_c: tuple[int, ...] = ()


class Watch:
    """Use as a context manager around the client run; ``seen()`` afterwards. ``ours`` gives our servers' pids."""

    def __init__(self, nvml: Any, ours: Callable[[], set[int]], period: float = PERIOD_SECONDS) -> None:
        self._nvml, self._ours, self._period = nvml, ours, period
        self._sampler = GpuSampler(nvml)
        self._strangers: dict[int, str] = {}
        self._known: set[int] = set()
        self._failure: GpuError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_until_stopped, name="gpu-processes", daemon=True)

    def __enter__(self) -> Watch:
        self._sampler.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sampler.__exit__()

    def seen(self) -> Seen:
        """What was seen. A GPU that could not be watched is a ``failure``: no sample may pass unwatched."""
        pids, words = tuple(sorted(self._strangers)), tuple(self._strangers[pid] for pid in sorted(self._strangers))
        try:
            if self._failure is not None:
                raise self._failure
            windows = self._sampler.windows()
        except GpuError as error:
            return Seen(foreign_pids=pids, strangers=words, failure=str(error))
        clocks = tuple(w.median_sm_mhz for w in windows if w.median_sm_mhz is not None)
        return Seen(
            clocks,
            throttle_reasons(windows),
            pids,
            words,
            lowest_clocks_mhz=tuple(w.lowest_sm_mhz for w in windows if w.lowest_sm_mhz is not None),
            clock_readings=min(w.busy_readings for w in windows),
            clock_drift=max((w.drift for w in windows if w.drift is not None), key=abs, default=None),
            power_w=tuple(w.median_power_w for w in windows),
            hottest_c=tuple(w.hottest_c for w in windows),
        )

    def _look_until_stopped(self) -> None:
        while True:
            try:
                self._look()
            except GpuError as error:
                self._failure = error
                return
            if self._stop.wait(self._period):
                return

    def _look(self) -> None:
        found = compute_processes(self._nvml)
        if {p.pid for p in found} <= self._known | self._strangers.keys():
            return  # listing our own processes costs more than the driver's call
        ours = self._ours()
        strangers = foreign(found, ours)
        self._strangers |= {p.pid: f"pid {p.pid} ({p.name or 'unknown'}) on GPU {p.gpu}" for p in strangers}
        self._known |= {p.pid for p in found} - {p.pid for p in strangers}
