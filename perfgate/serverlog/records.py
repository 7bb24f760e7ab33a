"""What one SGLang log says, as frozen records: batches, events, and the facts that the server stated at start-up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

# Records are named tuples and not frozen dataclasses: a log of 100 MB has a million of them, and a frozen dataclass of
# this width takes five to eight times as long to make.


class ServerLogError(ValueError):
    """A log that can't be read: missing, shorter than the offset asked for, or nothing in it is SGLang's."""


class EventKind(StrEnum):
    """What a line that is not a batch reports."""

    SERVER_ARGS = "server_args"
    WEIGHTS_BEGIN = "weights_begin"
    WEIGHTS_END = "weights_end"
    POOL_READY = "pool_ready"
    CAPACITY = "capacity"
    GRAPH_BEGIN = "graph_begin"
    GRAPH_PROGRESS = "graph_progress"
    GRAPH_END = "graph_end"
    GRAPH_OFF = "graph_off"
    GRAPH_FAILED = "graph_failed"
    LISTENING = "listening"
    READY = "ready"
    STARTUP = "startup"
    ACCESS = "access"
    FLUSH = "flush"
    FLUSH_REFUSED = "flush_refused"
    JIT = "jit"
    RETRACTION = "retraction"
    REQUEST_ABORTED = "request_aborted"
    REQUEST_ERROR = "request_error"
    KV_BUDGET = "kv_budget"
    KV_EXHAUSTED = "kv_exhausted"
    GPU_OOM = "gpu_oom"
    CUDA_ERROR = "cuda_error"
    PTXAS_ERROR = "ptxas_error"
    NCCL_TIMEOUT = "nccl_timeout"
    NAN = "nan"
    LEAK = "leak"
    HEALTH_FAILED = "health_failed"
    WATCHDOG = "watchdog"
    EXCEPTION = "exception"
    TRACEBACK = "traceback"
    CHILD_DIED = "child_died"
    PORT_IN_USE = "port_in_use"
    WARMUP_FAILED = "warmup_failed"
    PLUGIN_FAILED = "plugin_failed"
    SHUTDOWN = "shutdown"


class PrefillBatch(NamedTuple):
    """One ``Prefill batch`` line. Token counts are summed over the batch and rounded up to whole cache pages.

    ``running`` counts requests that decode already, ``queued`` those that wait; neither contains ``new_seqs``.
    ``token_usage`` is the fullest of ``usages`` (0 to 1). A field is None where the version does not write it.
    """

    line_no: int
    time: float | None
    rank: str | None
    new_seqs: int
    new_tokens: int
    cached_tokens: int
    running: int
    queued: int
    pending_tokens: int | None
    graph: bool | None
    graph_label: str | None
    token_usage: float | None
    usages: Mapping[str, float]
    input_throughput: float | None
    raw: str


class DecodeBatch(NamedTuple):
    """One ``Decode batch`` line, written every ``--decode-log-interval`` steps.

    ``gen_throughput`` (token/s) is tokens since the line before over wall time, idle time included, so the first one
    after a pause says nothing. ``graph_label`` is ``cuda graph``, ``cpu graph``, ... as written.
    """

    line_no: int
    time: float | None
    rank: str | None
    running: int
    queued: int
    tokens: int | None
    graph: bool | None
    graph_label: str | None
    token_usage: float | None
    usages: Mapping[str, float]
    gen_throughput: float | None
    accept_length: float | None
    raw: str


_ACCESS = re.compile(r'INFO: {5}(\S+) - "([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3})(?!\d)')


def access_fields(text: str) -> dict[str, Any] | None:
    """uvicorn's access line as client (``ip:port``), method, path (without the query) and status; None for others."""
    found = _ACCESS.search(text)
    if found is None:
        return None
    client, method, path, status = found.groups()
    return {"client": client, "method": method, "path": path.partition("?")[0], "status": int(status)}


class Event(NamedTuple):
    """One other line worth keeping. ``fields`` holds what the kind has: an access line client, method, path, status.

    A traceback is one event: ``fields["traceback"]`` has its lines and ``fields["error"]`` the last one.
    """

    line_no: int
    time: float | None
    rank: str | None
    kind: EventKind
    text: str
    details: Mapping[str, Any] | None = None

    @property
    def fields(self) -> Mapping[str, Any]:
        """The values in the line, by name; an access line's are read when asked for."""
        if self.details is None:
            return access_fields(self.text) or {}
        return self.details


@dataclass(frozen=True)
class Ready:
    """The line that says that the server takes requests."""

    line_no: int
    time: float | None
    raw: str


@dataclass(frozen=True)
class ServerFacts:
    """What the server said of itself while starting; None (or empty) where the log does not have it."""

    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    chunked_prefill_size: int | None = None
    graph_batch_sizes: tuple[int, ...] = ()
    graph_off_reason: str | None = None
    version: str | None = None
    page_size: int | None = None
    decode_log_interval: int | None = None
    stream_interval: int | None = None
    tp_size: int | None = None
    dp_size: int | None = None
    device: str | None = None
    served_model_name: str | None = None


@dataclass(frozen=True)
class ServerLog:
    """A parsed log, or a part of one. Records are in the order of the file; ``line_no`` counts from 1 in what was read.

    ``unparsed`` counts lines that name a batch but could not be read (torn by another rank's write, or a new format).
    ``end_offset`` is the byte after the last whole line read.
    """

    prefill: tuple[PrefillBatch, ...] = ()
    decode: tuple[DecodeBatch, ...] = ()
    events: tuple[Event, ...] = ()
    ready: Ready | None = None
    facts: ServerFacts = field(default_factory=ServerFacts)
    unparsed: int = 0
    lines: int = 0
    end_offset: int = 0

    @property
    def max_total_tokens(self) -> int | None:
        """Tokens that the KV pool holds (``max_total_num_tokens``)."""
        return self.facts.max_total_tokens

    @property
    def max_running_requests(self) -> int | None:
        """Requests that may decode at once."""
        return self.facts.max_running_requests

    @property
    def context_len(self) -> int | None:
        """Longest sequence in tokens."""
        return self.facts.context_len

    @property
    def graph_batch_sizes(self) -> tuple[int, ...]:
        """Decode batch sizes captured as graphs, ascending."""
        return self.facts.graph_batch_sizes

    @property
    def version(self) -> str | None:
        """SGLang's version where the log names it (server logs of 0.4.1 to 0.5.23 as a rule do not)."""
        return self.facts.version

    def of(self, *kinds: EventKind) -> tuple[Event, ...]:
        """The events of these kinds, in order."""
        return tuple(event for event in self.events if event.kind in kinds)
