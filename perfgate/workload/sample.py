"""One sample: what one run of the serving benchmark client reported, as frozen data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


class SampleError(ValueError):
    """A result line that is not one of the serving benchmark client's."""


@dataclass(frozen=True)
class Sample:
    """One client run at one point. Times in milliseconds unless the name says seconds; throughput in tokens per second.

    A field is None where the client's version does not write it. ``counters`` are the differences of the server's
    ``/metrics`` counters over the run (a counter that never fired counts 0), or None where they were not read.
    ``longest_itl_s`` is the longest pause between two chunks of any request, from the client's details.
    ``started_at``/``ended_at`` are seconds since the epoch around the client run, ``server_start`` numbers the server
    launch that the sample was taken on (the between-start spread needs it).
    """

    max_concurrency: int | None
    completed: int
    duration_s: float
    total_input_tokens: int
    total_output_tokens: int
    output_throughput: float
    total_output_tokens_retokenized: int | None = None
    request_throughput: float | None = None
    total_throughput: float | None = None
    concurrency: float | None = None
    mean_ttft_ms: float | None = None
    median_ttft_ms: float | None = None
    p99_ttft_ms: float | None = None
    mean_tpot_ms: float | None = None
    median_tpot_ms: float | None = None
    p99_tpot_ms: float | None = None
    mean_itl_ms: float | None = None
    median_itl_ms: float | None = None
    p99_itl_ms: float | None = None
    mean_e2e_latency_ms: float | None = None
    median_e2e_latency_ms: float | None = None
    p99_e2e_latency_ms: float | None = None
    accept_length: float | None = None
    random_input_len: int | None = None
    random_output_len: int | None = None
    server_version: str | None = None
    served_model_name: str | None = None
    exit_code: int = 0
    counters: Mapping[str, float] | None = None
    input_lens: tuple[int, ...] = ()
    output_lens: tuple[int, ...] = ()
    ttfts_s: tuple[float, ...] = ()
    longest_itl_s: float | None = None
    errors: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    server_start: int = 0
    client_cpu_share: float | None = None
    clocks_mhz: tuple[int, ...] = ()
    lowest_clocks_mhz: tuple[int, ...] = ()
    clock_readings: int | None = None
    clock_drift: float | None = None
    power_w: tuple[float, ...] = ()
    hottest_c: tuple[int, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    foreign_pids: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step_ms(self) -> float | None:
        """Time of one decode step: TPOT, or with speculation the time per verify step (TPOT x accept length)."""
        if self.median_tpot_ms is None:
            return None
        return self.median_tpot_ms * (self.accept_length or 1.0)


def read_sample(
    jsonl_line: str,
    exit_code: int = 0,
    counters_before: Mapping[str, float] | None = None,
    counters_after: Mapping[str, float] | None = None,
) -> Sample:
    """Read one line of the client's ``--output-file`` (0.4.1 to 0.5.23; ``Infinity`` allowed, as the client writes it).

    Raises SampleError when the line is not one whole JSON object or lacks what every version writes.
    """
    try:
        row = json.loads(jsonl_line)
    except (ValueError, RecursionError) as error:  # also a number of more digits than Python converts
        raise SampleError(f"not a whole JSON object: {error}; line starts {jsonl_line[:80]!r}") from None
    if not isinstance(row, dict):
        raise SampleError(f"expected a JSON object, got {type(row).__name__}")
    values: dict[str, Any] = {"duration_s": _number(row, "duration", required=True)}
    for name in _FLOATS:
        values[name] = _number(row, name, required=name == "output_throughput")
    for name in _COUNTS:
        values[name] = _count(row, name, required=name in _REQUIRED_COUNTS)
    for name, key in (("input_lens", "input_lens"), ("output_lens", "output_lens"), ("ttfts_s", "ttfts")):
        values[name] = _numbers(row, key)
    values["longest_itl_s"] = _longest(row.get("itls"))
    errors = row.get("errors")
    values["errors"] = tuple(str(e) for e in errors if e) if isinstance(errors, list) else ()
    info = row.get("server_info")
    if isinstance(info, dict):
        values["server_version"] = _text(info.get("version"))
        values["served_model_name"] = _text(info.get("served_model_name"))
    if counters_before is not None and counters_after is not None:
        names = set(counters_before) | set(counters_after)
        values["counters"] = {n: counters_after.get(n, 0.0) - counters_before.get(n, 0.0) for n in sorted(names)}
    return Sample(exit_code=exit_code, **values)


_REQUIRED_COUNTS = ("completed", "total_input_tokens", "total_output_tokens")
_COUNTS = (
    *_REQUIRED_COUNTS,
    "max_concurrency",
    "total_output_tokens_retokenized",
    "random_input_len",
    "random_output_len",
)
_FLOATS = tuple(
    f.name
    for f in fields(Sample)
    if f.name.endswith("_ms")
    or f.name in ("output_throughput", "request_throughput", "total_throughput", "concurrency", "accept_length")
)


def _number(row: Mapping[str, Any], key: str, required: bool = False) -> float | None:
    value = row.get(key)
    if value is None and not required:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SampleError(f"{key!r} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise SampleError(f"{key!r} must be a number that a float can hold, got {str(value)[:20]}...") from None
    if math.isnan(number):
        raise SampleError(f"{key!r} must be a number, got {value!r}")
    return number


def _count(row: Mapping[str, Any], key: str, required: bool = False) -> int | None:
    value = _number(row, key, required)
    if value is None:
        return None
    if not math.isfinite(value) or value < 0 or value != int(value):
        raise SampleError(f"{key!r} must be a whole number of at least 0, got {value!r}")
    return int(value)


def _numbers(row: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    values = row.get(key)
    if not isinstance(values, list):
        return ()
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        raise SampleError(f"{key!r} must be a list of numbers")
    if any(isinstance(v, int) and abs(v) >= 1 << 63 for v in values):
        raise SampleError(f"{key!r} holds a number of more than 63 bits")
    return tuple(values)


def _longest(itls: Any) -> float | None:
    """The longest of all pauses between two chunks, in seconds; the details hold one list a request."""
    rows = itls if isinstance(itls, list) else []
    values = [v for row in rows for v in (row if isinstance(row, list) else [row])]
    return max((float(v) for v in values if isinstance(v, float) and math.isfinite(v)), default=None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
