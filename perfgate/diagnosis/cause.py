"""The names of causes, and what a diagnosis holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """Why a measurement is missing or cannot count. NONE: nothing failed. UNKNOWN: the reason is not shown."""

    GPU_OOM = "GPU_OOM"
    KV_POOL_EXHAUSTED = "KV_POOL_EXHAUSTED"
    STARTUP_KV_BUDGET = "STARTUP_KV_BUDGET"
    GRAPH_CAPTURE_FAILED = "GRAPH_CAPTURE_FAILED"
    JIT_COMPILE_FAILED = "JIT_COMPILE_FAILED"
    NO_KERNEL_IMAGE = "NO_KERNEL_IMAGE"
    ILLEGAL_ACCESS = "ILLEGAL_ACCESS"
    NCCL_TIMEOUT = "NCCL_TIMEOUT"
    HANG_WATCHDOG = "HANG_WATCHDOG"
    HANG_NO_PROGRESS = "HANG_NO_PROGRESS"
    WEIGHT_LOAD_FAILED = "WEIGHT_LOAD_FAILED"
    UNSUPPORTED_MODEL = "UNSUPPORTED_MODEL"
    PORT_IN_USE = "PORT_IN_USE"
    CLIENT_TOKENIZER = "CLIENT_TOKENIZER"
    CLIENT_FAILED = "CLIENT_FAILED"
    SERVER_DIED = "SERVER_DIED"
    UNKNOWN = "UNKNOWN"
    NONE = "NONE"


@dataclass(frozen=True)
class Diagnosis:
    """One cause, and what shows it.

    ``evidence`` are lines of the log or of the client's output, verbatim (a very long line is cut to the part around
    what was recognised), in file order. ``reason`` is the innermost message in one line. ``first_rank`` is the rank
    that showed the first fault, as its line spells it ("TP3", "DP0 TP1", "rank5"), None where the line names none.
    ``phase`` is what the server was doing: "launch", "weights", "kv pool", "graph capture", "serving", "shutdown".

    ``fatal`` says that nothing measured after the first evidence line can count. ``warnings`` are lines that look like
    faults and are not. Tokens are counts, ``bytes_asked``/``bytes_limit`` bytes, ``uptime_s`` seconds from the log's
    first time stamp to the fault; each is None where the log does not say. ``line_no`` counts from 1, and carriage
    returns end a line too.
    """

    cause: Cause
    evidence: tuple[str, ...] = ()
    advice: str = ""
    first_rank: str | None = None
    reason: str = ""
    phase: str = "launch"
    fatal: bool = False
    line_no: int | None = None
    wanted_tokens: int | None = None
    available_tokens: int | None = None
    bytes_asked: int | None = None
    bytes_limit: int | None = None
    uptime_s: float | None = None
    warnings: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
