"""The everyday lines in one regular expression each, several times faster than reading pair by pair.

A line that does not fit goes to ``batches``, which knows every version; both read the same line to the same record.
"""

from __future__ import annotations

import re

from perfgate.serverlog.records import DecodeBatch, PrefillBatch

# A time, perhaps milliseconds, perhaps ranks: as prefix.PREFIX, anchored and without groups that are not needed.
_START = r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?:[.,]\d{1,6})?)((?: [A-Z_]{1,12}\d{1,5}){0,8})\] "
_FLOAT = r"(\d{1,12}\.\d\d)"
_INT = r"(\d{1,15})"
_USAGE = rf"(?:token usage: {_FLOAT}|full token usage: {_FLOAT}, swa token usage: {_FLOAT}), "

# uvicorn's own formatter: whole seconds, never a rank.
ACCESS = re.compile(
    r'\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] INFO: {5}\S{1,200} - "[A-Z]{3,7} \S{1,1000} HTTP/[\d.]+" \d{3}(?: [\w -]*)?$'
)
PREFILL = re.compile(
    _START
    + rf"Prefill batch[.,] #new-seq: {_INT}, #new-token: {_INT}, #cached-token: {_INT}, {_USAGE}"
    + rf"#running-req: {_INT}, #queue-req: {_INT}"
    + rf"(?:, #pending-token: {_INT}, (c[a-z]{{2,3}} graph): (True|False), input throughput \(token/s\): {_FLOAT})?"
    + r"(?:, )?$"
)
DECODE = re.compile(
    _START
    + rf"Decode batch[.,] #running-req: {_INT}, "
    + rf"(?:#token: {_INT}, token usage: {_FLOAT}"
    + rf"|#full token: {_INT}, full token usage: {_FLOAT}, #swa token: \d{{1,15}}, swa token usage: {_FLOAT}), "
    + rf"(?:accept len: {_FLOAT}, (?:accept rate: \d{{1,12}}\.\d\d, )?)?"
    + r"(?:(c[a-z]{2,3} graph): (True|False), )?"
    + rf"gen throughput \(token/s\): {_FLOAT}, #queue-req: {_INT}(?:, )?$"
)


def prefill(found: re.Match[str], line_no: int, time: float | None, raw: str) -> PrefillBatch:
    """The record of a line that PREFILL fits."""
    (_, _, rank, seqs, new, cached, plain, full, swa, running, queued, pending, label, graph, throughput) = (
        found.groups()
    )
    usage, usages = _usages(plain, full, swa)
    return PrefillBatch(
        line_no,
        time,
        rank[1:] or None,
        int(seqs),
        int(new),
        int(cached),
        int(running),
        int(queued),
        None if pending is None else int(pending),
        None if graph is None else graph == "True",
        label,
        usage,
        usages,
        None if throughput is None else float(throughput),
        raw,
    )


def decode(found: re.Match[str], line_no: int, time: float | None, raw: str) -> DecodeBatch:
    """The record of a line that DECODE fits."""
    (_, _, rank, running, tokens, plain, full_tokens, full, swa, accept, label, graph, throughput, queued) = (
        found.groups()
    )
    usage, usages = _usages(plain, full, swa)
    return DecodeBatch(
        line_no,
        time,
        rank[1:] or None,
        int(running),
        int(queued),
        int(tokens if full_tokens is None else full_tokens),
        None if graph is None else graph == "True",
        label,
        usage,
        usages,
        float(throughput),
        None if accept is None else float(accept),
        raw,
    )


def _usages(plain: str | None, full: str | None, swa: str | None) -> tuple[float, dict[str, float]]:
    if plain is not None:
        value = float(plain)
        return value, {"token usage": value}
    first, second = float(full or 0), float(swa or 0)
    return max(first, second), {"full token usage": first, "swa token usage": second}
