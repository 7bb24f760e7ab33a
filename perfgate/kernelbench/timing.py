"""GPU time of a call: CUDA-graph replays over rotating inputs, each with a cold L2 (edge, on torch).

Each call is captured once for each set of inputs. A replay is preceded by a write of more bytes than any L2 holds, and
timed by two events around the graph; while that write runs the CPU has queued what follows it, so no launch is in the
time. Without a GPU calls run in place of replays and no time passes: what a test of the plumbing needs.
"""

from __future__ import annotations

import statistics
import time
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

Call = Callable[[], Any]


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

    Raises whatever a call raises, before anything is timed.
    """

    def __init__(self, calls: Sequence[Call], device: torch.device) -> None:
        self._calls, self._cuda, self._next = list(calls), device.type == "cuda", 0
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._flush: torch.Tensor | None = None
        if self._cuda:
            # Compiles and tunes what has to be: no replay does either.
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for call in self._calls:
                    call()
                    call()
            torch.cuda.synchronize()
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
        self.outputs: list[Any] = []
        self.capture()

    def capture(self) -> None:
        """Capture every call (anew), and poison what it wrote."""
        self._graphs, self.outputs = [], []
        # One pool: the calls' scratch memory is then there once, and only their outputs, which are held, once a set.
        pool = torch.cuda.graph_pool_handle() if self._cuda else None
        for call in self._calls:
            if self._cuda:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
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
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._replay(begin, end)
        end.synchronize()
        _Clock.seconds += begin.elapsed_time(end) / 1e3

    def busy(self, seconds: float) -> None:
        """Queue replays for about so long and do not wait for them: something to look at the GPU's clocks during."""
        if not self._cuda:
            return
        before = gpu_seconds()
        self.once()
        # The flush takes at least as long as 256 MiB take at 8 TB/s.
        each = gpu_seconds() - before + FLUSH_BYTES / 8e12
        for _ in range(min(2000, int(seconds / each) + 1)):
            self._replay()

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


def rates(device: torch.device) -> dict[str, Any]:
    """Bytes and matrix FLOPs a second of this card, measured now, as ``roofline.restore`` reads them."""
    began = time.monotonic()
    found: dict[str, Any] = {"bytes": _copy_rate(device)}
    n = 8192
    flops = 2 * n**3
    a, b = (torch.randn(n, n, device=device).bfloat16() for _ in range(2))
    found["bf16"] = flops / _seconds(lambda: a @ b, device)
    try:
        fp8 = torch.float8_e4m3fn
        x, y, one = a.to(fp8), b.to(fp8).t().contiguous().t(), torch.ones((), device=device)
        found["fp8"] = flops / _seconds(
            lambda: torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), device
        )
    except (RuntimeError, AttributeError, TypeError, ValueError) as fault:
        # Torch's private entry: where it is gone, bf16's rate stands in, and the table says so.
        found["fp8_fault"] = str(fault).splitlines()[0][:200]
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        wide, other = a.float(), b.float()
        found["tf32"] = flops / _seconds(lambda: wide @ other, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    nothing = torch.zeros(1, device=device)
    found["floor_us"] = median_us([nothing.zero_], device)
    found["source"] = f"measured in this run, in {time.monotonic() - began:.1f} s"
    return found


def _copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written, of a copy far larger than the L2."""
    size = 1 << 30
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source), device)


def _seconds(call: Call, device: torch.device) -> float:
    return median_us([call], device, 20) / 1e6
