"""A torch whose ``cuda`` isn't there: it keeps the order of what is asked of it, and a clock that only work moves.

Work done while a graph is captured is kept and not run, and runs at each replay of the graph, as on a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

FLUSH_US, LAUNCH_US = 70.0, 10.0


class FakeCuda:
    """``log`` holds every operation in order; ``queued`` is what a test lets run dry."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.now_us = 0.0
        self.stream_name = "main"
        self.capturing: FakeGraph | None = None
        self.streams = 0
        self.queued = True
        self.launch_us = LAUNCH_US

    def launch(self, name: Any, work: Callable[[], None], us: float | None = None) -> None:
        """One kernel: kept for the graph that is being captured, else run now."""
        if self.capturing is not None:
            self.capturing.work.append((name, work, us))
            return
        self.log.append(("run", name, self.stream_name))
        self.now_us += self.launch_us if us is None else us
        work()

    # What torch.cuda has.
    def Stream(self) -> Any:
        self.streams += 1
        name = f"side {self.streams}"
        return SimpleNamespace(name=name, wait_stream=lambda other: self.log.append(("wait", name, other.name)))

    def current_stream(self) -> Any:
        return SimpleNamespace(name=self.stream_name)

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.stream_name = self.stream_name, stream.name
        yield
        self.stream_name = before

    def synchronize(self, index: int | None = None) -> None:
        self.log.append(("synchronize",))

    def graph_pool_handle(self) -> str:
        return "pool"

    def CUDAGraph(self) -> FakeGraph:
        return FakeGraph(self)

    @contextlib.contextmanager
    def graph(self, graph: FakeGraph, pool: Any = None, stream: Any = None) -> Iterator[None]:
        graph.number = sum(entry[0] == "capture" for entry in self.log)
        self.log.append(("capture", stream.name if stream is not None else "torch's own"))
        self.capturing = graph
        yield
        self.capturing = None

    def Event(self, enable_timing: bool = False) -> FakeEvent:
        return FakeEvent(self)

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(uuid="12345678", name="fake")


class FakeGraph:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.work, self.number = cuda, [], -1

    def replay(self) -> None:
        self.cuda.log.append(("replay", self.number))
        for name, work, us in self.work:
            self.cuda.launch(name, work, us)


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.at_us = cuda, 0.0

    def record(self) -> None:
        self.cuda.log.append(("event",))
        self.at_us = self.cuda.now_us

    def synchronize(self) -> None:
        self.cuda.log.append(("event synchronize",))

    def elapsed_time(self, later: FakeEvent) -> float:
        return (later.at_us - self.at_us) / 1e3

    def query(self) -> bool:
        return not self.cuda.queued


class Flush:
    """The buffer that is written before each replay."""

    def __init__(self, cuda: FakeCuda, size: int) -> None:
        self.cuda, self.size = cuda, size

    def zero_(self) -> None:
        self.cuda.launch("flush", lambda: None, FLUSH_US)


class FakeTorch:
    """``torch`` with that ``cuda``; tensors are real and lie on the CPU."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, size: int, dtype: Any = None, device: Any = None) -> Flush:
        return Flush(self.cuda, size)


DEVICE = SimpleNamespace(type="cuda", index=0)
"""Stands for ``torch.device("cuda")``, on which this torch makes nothing."""
