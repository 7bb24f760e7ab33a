"""An SGLang plug-in that makes the decode step slower on purpose, by an amount that is known.

``PERFGATE_SLOWDOWN`` says how: ``share=0.10`` lengthens each decode step by 10 % of what it takes without, ``request_ms=0.2``
by 0.2 ms for each request in the running batch. The time is really spent: on a GPU by a kernel that spins in the forward
stream behind the step's own kernels (or behind the replay of its graph), on a CPU by spinning in the scheduler's thread.

On a CPU all times are the thread's own, not the wall's: where other work has the core for most of a step, a tenth of the wall
time would be half as much again of the step's work (measured at a load of 12 on 2 cores: 52 % where 10 % was asked for).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

VARIABLE = "PERFGATE_SLOWDOWN"
TARGET = "sglang.srt.model_executor.model_runner.ModelRunner.forward"
KNOWN_FROM = 16
"""Steps of a batch size that are watched before the first is lengthened by a share of them."""

IDLE_S = 2.0
"""A longer gap between two steps is idleness and not a step."""


class Slowdown:
    """How much to add to a decode step. Times in seconds."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for anything but ``share=X`` or ``request_ms=X`` with X above 0."""
        kind, _, amount = text.partition("=")
        self.kind, self.amount = kind, float(amount)
        if kind not in ("share", "request_ms") or not self.amount > 0:
            raise ValueError(f"{VARIABLE}={text!r}: give share=X or request_ms=X, X above 0")
        self._seen: dict[int, deque[float]] = defaultdict(lambda: deque(maxlen=64))
        self._last: tuple[float, int, float] | None = None

    def seconds(self, size: int, now: float) -> float:
        """What to add to the step of ``size`` requests that ends at ``now``, by a clock that only goes while steps are made."""
        if self._last is not None and self._last[1] == size:
            own = now - self._last[0] - self._last[2]
            if 0 < own < IDLE_S:
                self._seen[size].append(own)
        added = self._added(size)
        self._last = (now, size, added)
        return added

    def _added(self, size: int) -> float:
        if self.kind == "request_ms":
            return self.amount * size / 1000
        seen = self._seen[size]
        return self.amount * statistics.median(seen) if len(seen) >= KNOWN_FROM else 0.0

    def broken_off(self) -> None:
        """A prefill came between: the time to the next step is not a step's."""
        self._last = None


def spin(seconds: float) -> None:
    """Compute for so long, as the step itself does: to sleep would be to give the core away, and to come back when it is
    given."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def gpu_spin() -> Callable[[float], None]:
    """``spin`` on the current stream of the GPU, calibrated in cycles a second."""
    import torch

    cycles = 20_000_000
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    rates = []
    for _ in range(3):
        began.record()
        torch.cuda._sleep(cycles)
        ended.record()
        ended.synchronize()
        rates.append(cycles / (began.elapsed_time(ended) / 1000))
    rate = statistics.median(rates)
    return lambda seconds: torch.cuda._sleep(max(1, int(seconds * rate)))


def around(slowdown: Slowdown) -> Callable[..., Any]:
    """The hook around ``ModelRunner.forward``."""
    tools: list[tuple[Callable[[float], None], Callable[[], float]]] = []

    def forward(original: Callable[..., Any], runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(runner, batch, *args, **kwargs)
        if not batch.forward_mode.is_decode():
            slowdown.broken_off()
            return result
        if not tools:
            on_gpu = str(batch.input_ids.device).startswith("cuda")
            tools.append((gpu_spin(), time.perf_counter) if on_gpu else (spin, time.thread_time))
        spend, clock = tools[0]
        added = slowdown.seconds(int(batch.batch_size), clock())
        if added > 0:
            spend(added)
        return result

    return forward


def register() -> None:
    """Entry point ``sglang.srt.plugins``. Stops the server where it cannot do what it was asked for."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register(TARGET, around(Slowdown(text)), HookType.AROUND)
    except Exception as error:
        # SGLang logs what else a plug-in raises and comes up without it: then nothing would be slowed.
        print(f"[slowdown] refusing to start: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    print(f"[slowdown] {text} in process {os.getpid()}", file=sys.stderr, flush=True)
