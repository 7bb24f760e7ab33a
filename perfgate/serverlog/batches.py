"""``Prefill batch`` and ``Decode batch`` lines of 0.4.1 to 0.5.23.

All versions write ``key: value`` pairs joined by ``, `` after the head; which pairs there are and whether a comma ends
the line differs (metrics_reporter.py, pool_stats_observer.py). So pairs are read by name, never by position.
"""

from __future__ import annotations

import math
import re

from perfgate.serverlog.records import DecodeBatch, PrefillBatch

_HEAD = re.compile(r"(?:Prefill|Decode) batch(?: ?\[\d+\])?[.,] ")
# Usage of pools outside the KV cache of running requests: shown, but not part of "how full is the cache".
_NOT_KV = ("pre-allocated usage", "cpu token usage")


def _pairs(message: str) -> dict[str, str] | None:
    head = _HEAD.match(message)
    if head is None:
        return None
    pairs = {}
    for part in message[head.end() :].split(", "):
        key, colon, value = part.partition(": ")
        if colon:
            pairs[key.strip()] = value
    return pairs


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.rstrip("%, "))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _graph(pairs: dict[str, str]) -> tuple[str | None, bool | None]:
    for label in ("cuda graph", "cpu graph"):
        if label in pairs:
            break
    else:
        label = next((key for key in pairs if key.endswith(" graph")), "")
    value = pairs.get(label, "").rstrip(", ")
    return (label, value == "True") if value in ("True", "False") else (None, None)


def _usages(pairs: dict[str, str]) -> tuple[float | None, dict[str, float]]:
    usages = {}
    for key, text in pairs.items():
        if key.endswith("usage"):
            value = _number(text)
            if value is not None:
                usages[key] = value
    return max((v for k, v in usages.items() if k not in _NOT_KV), default=None), usages


def _optional_int(text: str | None) -> int | None:
    return None if text is None else int(text.rstrip(", "))


def prefill(line_no: int, time: float | None, rank: str | None, message: str, raw: str) -> PrefillBatch | None:
    """The line as a record, or None when a count that every version writes is missing or no number."""
    pairs = _pairs(message)
    if pairs is None:
        return None
    try:
        seqs, new, cached, running, queued = (int(pairs[key].rstrip(", ")) for key in _PREFILL_COUNTS)
        pending = _optional_int(pairs.get("#pending-token"))
    except (KeyError, ValueError):
        return None
    label, graph = _graph(pairs)
    usage, usages = _usages(pairs)
    throughput = _number(pairs.get("input throughput (token/s)"))
    return PrefillBatch(
        line_no,
        time,
        rank,
        seqs,
        new,
        cached,
        running,
        queued,
        pending,
        graph,
        label,
        usage,
        usages,
        throughput,
        raw,
    )


def decode(line_no: int, time: float | None, rank: str | None, message: str, raw: str) -> DecodeBatch | None:
    """The line as a record, or None when a count that every version writes is missing or no number."""
    pairs = _pairs(message)
    if pairs is None:
        return None
    try:
        running = int(pairs["#running-req"])
        queued = int(pairs["#queue-req"].rstrip(", "))
        tokens = _optional_int(pairs.get("#token", pairs.get("#full token")))
    except (KeyError, ValueError):
        return None
    label, graph = _graph(pairs)
    usage, usages = _usages(pairs)
    throughput = _number(pairs.get("gen throughput (token/s)"))
    accept = _number(pairs.get("accept len"))
    return DecodeBatch(
        line_no, time, rank, running, queued, tokens, graph, label, usage, usages, throughput, accept, raw
    )


_PREFILL_COUNTS = ("#new-seq", "#new-token", "#cached-token", "#running-req", "#queue-req")
