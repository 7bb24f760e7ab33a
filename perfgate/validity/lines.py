"""Batch lines as validity needs them: one line a batch, health probes and cut prompts told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfgate.serverlog import DecodeBatch, EventKind, PrefillBatch, ServerLog


def _group(rank: str | None) -> str:
    return next((part for part in (rank or "").split() if part.startswith("DP")), "")


def primary(log: ServerLog) -> tuple[list[PrefillBatch], list[DecodeBatch]]:
    """The lines of one rank of each data-parallel group: others of the group report the same batches."""
    first: dict[str, str | None] = {}
    batches: list[PrefillBatch | DecodeBatch] = [*log.prefill, *log.decode]
    for record in sorted(batches, key=lambda b: b.line_no):
        first.setdefault(_group(record.rank), record.rank)
    return (
        [r for r in log.prefill if first[_group(r.rank)] == r.rank],
        [r for r in log.decode if first[_group(r.rank)] == r.rank],
    )


def page_size(log: ServerLog, prefill: Sequence[PrefillBatch]) -> int:
    """Tokens of a cache page, to which prefill lines round each prompt up: as stated, or the common divisor seen."""
    if log.facts.page_size:
        return log.facts.page_size
    common = math.gcd(*(line.new_tokens for line in prefill)) if len(prefill) >= 3 else 1
    return common if common >= 16 and common & (common - 1) == 0 else 1


def health_gets(log: ServerLog) -> int:
    """How often SGLang's health endpoints were asked."""
    return sum(str(event.fields.get("path")).startswith("/health") for event in log.of(EventKind.ACCESS))


def is_probe(line: PrefillBatch, page: int, input_len: int | None, asked: bool) -> bool:
    """Whether a line is the one token that ``/health`` generates on an idle server (http_server.py, ``input_ids=[0]``).

    Where pages hide the length and a planned prompt fills one page as well, only an access line (``asked``) tells.
    """
    shape = line.new_seqs == 1 and line.running == 0 and line.queued == 0 and line.cached_tokens <= 1
    if not shape or line.new_tokens not in (1, page):
        return False
    ambiguous = input_len is not None and line.new_tokens == math.ceil(input_len / page) * page
    return asked if ambiguous and line.new_tokens != 1 else not ambiguous


def cut_lines(log: ServerLog, prefill: Sequence[PrefillBatch], page: int) -> set[int]:
    """Indices of lines that may hold a piece of a prompt: it was cut by the chunk limit, or its rest follows.

    0.5.11 and later say what is pending; before, a batch that fills the chunk may have been cut.
    """
    chunk = log.facts.chunked_prefill_size or 2048
    cut: set[int] = set()
    last: dict[str | None, bool] = {}
    for index, line in enumerate(prefill):
        full = line.new_tokens > chunk - page if line.pending_tokens is None else line.pending_tokens > 0
        if full or last.get(line.rank, False):
            cut.add(index)
        last[line.rank] = full
    return cut


def pieces(log: ServerLog, prefill: Sequence[PrefillBatch], page: int) -> int:
    """The most sequences that could have been counted twice, because their prompt was cut."""
    chunk = log.facts.chunked_prefill_size or 2048
    return sum(
        line.new_tokens > chunk - page if line.pending_tokens is None else line.pending_tokens > 0 for line in prefill
    )
