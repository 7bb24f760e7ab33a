"""Byte and token counts that fault messages give, and which buffer a size belongs to."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
_ASKED = re.compile(r"[Tt]ried to allocate (\d{1,12}(?:\.\d{1,6})?) ?(bytes|[KMG]i?B)")
_CAPACITY = re.compile(r"total capacity of (\d{1,12}(?:\.\d{1,6})?) ?([KMG]i?B)")
_FREE = re.compile(r"of which (\d{1,12}(?:\.\d{1,6})?) ?([KMG]i?B) is free")
_PTXAS = re.compile(r"uses too much shared data \(0x([0-9a-fA-F]{1,12}) bytes, 0x([0-9a-fA-F]{1,12}) max\)")
_TRITON = re.compile(r"Required: (\d{1,12}), Hardware limit: (\d{1,12})")
_WANTED = re.compile(r"Try to allocate (\d{1,15}) tokens")
_AVAILABLE = re.compile(r"Available (?:full )?tokens: (\d{1,15})")

MIN_INDEXER_BYTES = 64 << 20
"""Below this the indexer's logits are not what fills a GPU, and a match of the formula would be chance."""

MAX_LAYER_BYTES = 264 << 10
"""Of one token at most in any other buffer of a DeepSeek-V4 layer: 4 x 4 x 4096 fp32 of the hyper-connections' mix in torch
(``hc_post``, deepseek_v4.py:1351), and 3 % for rounding."""


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS["" if unit == "bytes" else unit.upper()])


def asked_and_limit(text: str) -> tuple[int | None, int | None]:
    """Return (bytes asked, bytes allowed): of shared memory in ptxas and Triton messages, of GPU memory in torch's.

    Formats: ptxas ``(0xc980 bytes, 0xc000 max)``, Triton ``Required: 131072, Hardware limit: 101376``, torch ``Tried to
    allocate 616.00 MiB. GPU 0 has a total capacity of 79.10 GiB …``.
    """
    if match := _PTXAS.search(text):
        return int(match.group(1), 16), int(match.group(2), 16)
    if match := _TRITON.search(text):
        return int(match.group(1)), int(match.group(2))
    asked, limit = _ASKED.search(text), _CAPACITY.search(text)
    return (_bytes(*asked.groups()) if asked else None), (_bytes(*limit.groups()) if limit else None)


def free_bytes(text: str) -> int | None:
    """GPU memory that torch reports free in its out-of-memory message."""
    match = _FREE.search(text)
    return _bytes(*match.groups()) if match else None


def wanted_tokens(text: str) -> int | None:
    """KV tokens that an allocation asked for (``Try to allocate N tokens.``)."""
    match = _WANTED.search(text)
    return int(match.group(1)) if match else None


def available_tokens(text: str) -> int | None:
    """KV tokens that were free or evictable (``Available full tokens: N`` or ``Available tokens: N``)."""
    match = _AVAILABLE.search(text)
    return int(match.group(1)) if match else None


def indexer_logits_bytes(rows: int, context: int) -> int:
    """Bytes of the sparse indexer's fp32 logits for ``rows`` query tokens over ``context`` tokens, compressed 4 to 1.

    ``[rows, align256(context / 4)]`` fp32, outside the memory that --mem-fraction-static accounts for (SGLang #35201).
    """
    width = -(-(context // 4) // 256) * 256
    return rows * width * 4


def indexer_context(asked: int | None, rows: int, lengths: list[int], limit: int) -> int | None:
    """Return the context in tokens for which ``asked`` bytes are the indexer's logits of one chunk, or None.

    ``lengths`` are those in tokens that a long prompt under way may have, none where no such prompt is; a match is within
    1 % (torch prints two decimals). ``limit`` is the server's longest context where the traceback leads into the indexer:
    then any context from a chunk up to it is one, as a chunk in mid-prompt scores what came before it. 0 where it does
    not: then the size has to be one that nothing else takes a row.
    """
    if not asked or not rows or not lengths or asked < MIN_INDEXER_BYTES:
        return None
    implied = round(asked / rows)
    if not limit and implied <= MAX_LAYER_BYTES:
        return None
    for context in lengths:
        if context and abs(indexer_logits_bytes(rows, context) - asked) <= 0.01 * asked:
            return context
    return implied if max(rows, 4096) <= implied <= limit else None
