"""How long a replayed step keeps the GPU busy: groups of one graph launch, overlapping streams, traces without any."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate import busy


def kernel(begin: float, length: float, correlation: int | None, **changes: Any) -> dict[str, Any]:
    args = {} if correlation is None else {"correlation": correlation}
    return {"cat": "kernel", "name": "k", "ts": begin, "dur": length, "args": args} | changes


def step(start: float, correlation: int, kernels: int = 12) -> list[dict[str, Any]]:
    """Kernels of 80 us, 100 us apart."""
    return [kernel(start + 100.0 * i, 80.0, correlation) for i in range(kernels)]


def test_kernels_of_one_launch_are_one_step_and_single_ones_are_none() -> None:
    single = [kernel(1e6 + i, 1.0, 900 + i) for i in range(50)]
    found = busy.of({"traceEvents": [*step(0.0, 1), *step(5000.0, 2), *single]})
    assert found is not None
    assert (found.steps, found.kernels) == (2, 12)
    assert found.busy_ms == pytest.approx(0.96)
    assert found.span_ms == pytest.approx(1.18)
    assert "0.96 ms" in found.note


def test_kernels_on_two_streams_at_once_count_once() -> None:
    both = [*step(0.0, 1), *step(10.0, 1)]  # the second stream's run 10 us behind
    found = busy.of({"traceEvents": both})
    assert found is not None
    assert found.busy_ms == pytest.approx(12 * 0.09)


@pytest.mark.parametrize(
    "trace",
    [
        None,
        {},
        {"traceEvents": []},
        {"traceEvents": step(0.0, 1, kernels=3)},
        {"traceEvents": [kernel(0.0, 1.0, None)] * 20},
        {"traceEvents": [kernel(0.0, 1.0, 1, cat="gpu_memcpy")] * 20},
        {"traceEvents": [kernel(0.0, 1.0, 1, dur=None)] * 20 + ["odd"]},
    ],
)
def test_a_trace_without_replayed_steps_says_nothing(trace: Any) -> None:
    assert busy.of(trace) is None
