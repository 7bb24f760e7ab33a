"""GPU time of a call: CUDA-graph replays over rotating inputs, each with a cold L2 (edge, on torch).

Each call is captured once for each set of inputs, on the stream that warmed it up: a call may keep memory for each stream.
A replay is preceded by a write of more bytes than any L2 holds, and timed by two events around the graph; while that write
runs the CPU has queued what follows it, so no launch is in the time. Without a GPU calls run in place of replays and no time
passes: what a test of the plumbing needs.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLUSH_BYTES = 256 << 20
"""More than the L2 of any card here (128 MB on sm_120, 50 MB on sm_90)."""

REPLAYS = 60
BLOCKS = 3
"""Replays are taken in blocks, each with graphs captured anew, so that where memory happens to lie is part of the noise."""

WARM_UP = 20
"""Replays after a capture that are not timed: some milliseconds, in which an idle card comes back to its clock."""

QUEUE = 400
"""Replays queued at most in one go: a launch queue of CUDA's holds 1,024 entries and then makes the CPU wait."""

Call = Callable[[], Any]


class TooSlow(Exception):
    """A call takes so long that its replays would cost more than they may; the message says how long."""


class _Clock:
    seconds = 0.0


def gpu_seconds() -> float:
    """GPU seconds of all timed replays so far: the benchmark fixture's timer."""
    return _Clock.seconds


def tensors(result: Any) -> list[torch.Tensor]:
    """All tensors of a call's result, in order."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, list | tuple):
        return [tensor for part in result for tensor in tensors(part)]
    return []


def poison(result: Any) -> None:
    """Overwrite all of a result with NaN, or with a number that no index is, so that an old one cannot pass for new."""
    for tensor in tensors(result):
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)
        else:
            tensor.fill_(-777 if torch.iinfo(tensor.dtype).min < 0 else torch.iinfo(tensor.dtype).max)


class Replayer:
    """One call a set of inputs, ready to be replayed in turn. ``outputs`` holds what each replay writes.

    Raises whatever a call raises, before anything is timed, and TooSlow where the replays of all blocks would take more
    than ``most_seconds``.
    """

    def __init__(self, calls: Sequence[Call], device: torch.device, most_seconds: float | None = None) -> None:
        self._calls, self._cuda, self._next = list(calls), device.type == "cuda", 0
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._flush: torch.Tensor | None = None
        self._side: Any = None
        if self._cuda:
            self._warm_up(most_seconds)
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
        self.outputs: list[Any] = []
        self.capture()

    def _warm_up(self, most_seconds: float | None) -> None:
        """Run each call twice: it compiles and tunes what has to be, so that no replay does either."""
        self._side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            for at, call in enumerate(self._calls):
                call()
                begin, end = _events()
                begin.record()
                call()
                end.record()
                if at == 0 and most_seconds is not None:
                    end.synchronize()
                    _refuse_slow(begin.elapsed_time(end) / 1e3, most_seconds)
        torch.cuda.synchronize()

    def capture(self) -> None:
        """Capture every call (anew), and poison what it wrote."""
        self._graphs, self.outputs = [], []
        # One pool: the calls' scratch memory is then there once, and only their outputs, which are held, once a set. A later
        # graph's output may lie in an earlier one's scratch: it is whole only after replays in this order.
        pool = torch.cuda.graph_pool_handle() if self._cuda else None
        for call in self._calls:
            if self._cuda:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=self._side):
                    output = call()
                self._graphs.append(graph)
            else:
                output = call()
            self.outputs.append(output)
        for _ in range(WARM_UP if self._cuda else 0):
            self._replay()
        if self._cuda:
            torch.cuda.synchronize()
        for output in self.outputs:
            poison(output)
        self._next = 0

    def once(self) -> None:
        """One timed replay of the next set; its GPU time is added to ``gpu_seconds``."""
        if not self._cuda:
            self._run_in_place()
            return
        begin, end = _events()
        self._replay(begin, end)
        end.synchronize()
        _Clock.seconds += begin.elapsed_time(end) / 1e3

    def busy(self, seconds: float) -> Callable[[], bool]:
        """Queue replays for about so long, and return whether they still go on: something to read the clocks during.

        No more than QUEUE of them. None of their time is added to ``gpu_seconds``.
        """
        if not self._cuda:
            return lambda: True
        begin, end = _events()
        begin.record()
        self._replay()
        end.record()
        end.synchronize()
        each = max(begin.elapsed_time(end) / 1e3, 1e-6)
        for _ in range(min(QUEUE, int(seconds / each) + 1)):
            self._replay()
        last = torch.cuda.Event()  # type: ignore[no-untyped-call]
        last.record()
        return lambda: not last.query()  # type: ignore[no-untyped-call]

    def _replay(self, begin: Any = None, end: Any = None) -> None:
        assert self._flush is not None
        graph = self._graphs[self._next % len(self._graphs)]
        self._next += 1
        self._flush.zero_()
        if begin is not None:
            begin.record()
        graph.replay()
        if end is not None:
            end.record()

    def _run_in_place(self) -> None:
        at = self._next % len(self._calls)
        self._next += 1
        for old, new in zip(tensors(self.outputs[at]), tensors(self._calls[at]()), strict=True):
            old.copy_(new)


def _events() -> tuple[Any, Any]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    return begin, end


def _refuse_slow(seconds: float, most: float) -> None:
    replays = REPLAYS + BLOCKS * WARM_UP
    if seconds * replays > most:
        raise TooSlow(
            f"too slow, {1e3 * seconds:.0f} ms a call: {replays} replays would take {seconds * replays:.0f} s, "
            f"more than {most:g}"
        )


def replay_times(replayer: Replayer, replays: int = REPLAYS) -> list[float]:
    """GPU seconds of each of so many replays, in the order they were taken."""
    times = []
    for _ in range(replays):
        before = gpu_seconds()
        replayer.once()
        times.append(gpu_seconds() - before)
    return times


def median_us(calls: Sequence[Call], device: torch.device, replays: int = REPLAYS) -> float:
    """Median GPU time of a call in microseconds; for tuning and rates. A gated time goes through the benchmark fixture."""
    return 1e6 * statistics.median(replay_times(Replayer(calls, device), replays))
