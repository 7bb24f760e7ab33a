"""Indexer logits over the paged FP8 cache, with work that follows each row's real length.

A fixed grid of programs shares out the tiles that exist: every program adds up the rows' tile counts itself and takes
an equal, contiguous share. The grid depends on the card and the number of rows alone, so a captured CUDA graph stays
right when lengths grow, and nothing grows with `max_seq_len`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

from .card import INTERPRETING, Card, CompileCase, card_for
from .indexer_table import ROW_BLOCKS, TABLE, IndexerConfig, choose, row_block

HEADS, HEAD_DIM, PAGE = 64, 128, 64
ROW_BYTES = HEAD_DIM + 4
CLEAN_BLOCK, CLEAN_PROGRAMS = 1024, 32


# The number of rows, the longest length and the tables' strides differ from call to call, and decide no load's width.
@triton.jit(do_not_specialize=("rows", "max_length", "length_stride", "table_stride"))
def dsv4_paged_mqa_logits_kernel(
    q_ptr, k_ptr, scale_ptr, weight_ptr, length_ptr, table_ptr, out_ptr,
    rows, max_length, q_stride, page_stride, scale_stride, weight_stride, length_stride, table_stride, out_stride,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, ROW_BLOCK: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row_ids = tl.arange(0, ROW_BLOCK)
    lengths = tl.load(length_ptr + row_ids * length_stride, mask=row_ids < rows, other=0)
    lengths = tl.minimum(tl.maximum(lengths, 0), max_length)
    tiles = (lengths + TILE - 1) // TILE
    ends = tl.cumsum(tiles, 0)
    total = tl.sum(tiles, 0)
    share = (total + tl.num_programs(0) - 1) // tl.num_programs(0)
    first = program * share
    last = tl.minimum(first + share, total)
    if first < last:
        first_row = tl.sum((ends <= first).to(tl.int32), 0)
        last_row = tl.sum((ends < last).to(tl.int32), 0)
        heads = tl.arange(0, HEADS)
        dims = tl.arange(0, HEAD_DIM)
        for step in range(last_row - first_row + 1):
            row = first_row + step
            length = tl.sum(tl.where(row_ids == row, lengths, 0), 0)
            row_end = tl.sum(tl.where(row_ids == row, ends, 0), 0)
            row_begin = row_end - (length + TILE - 1) // TILE
            wide_row = row.to(tl.int64)
            q = tl.load(q_ptr + wide_row * q_stride + heads[:, None] * HEAD_DIM + dims[None, :])
            weight = tl.load(weight_ptr + wide_row * weight_stride + heads)
            if INTERPRET:
                q = q.to(tl.float32)
            for tile in range(tl.maximum(first, row_begin) - row_begin, tl.minimum(last, row_end) - row_begin):
                tokens = tile * TILE + tl.arange(0, TILE)
                live = tokens < length
                # Pages past the row's length may hold anything, and so may the table's entries for them: not read.
                page = tl.load(table_ptr + wide_row * table_stride + tokens // PAGE, mask=live, other=0).to(tl.int64)
                slot = tokens % PAGE
                k = tl.load(
                    k_ptr + (page * page_stride + slot * HEAD_DIM)[:, None] + dims[None, :],
                    mask=live[:, None],
                    other=0.0,
                )
                scale = tl.load(scale_ptr + page * scale_stride + (PAGE * HEAD_DIM // 4) + slot, mask=live, other=0.0)
                if INTERPRET:
                    k = k.to(tl.float32)
                dot = tl.dot(k, tl.trans(q), out_dtype=tl.float32)
                # A NaN among a row's live bytes is a fault upstream: let it through rather than score it 0.
                positive = tl.maximum(dot, 0.0, propagate_nan=tl.PropagateNan.ALL)
                logits = tl.sum(positive * weight[None, :], 1) * scale
                tl.store(out_ptr + wide_row * out_stride + tokens, logits, mask=live)


@triton.jit(do_not_specialize=("max_length", "readable", "length_stride"))
def dsv4_paged_mqa_logits_clean_kernel(
    length_ptr, out_ptr, max_length, readable, length_stride, out_stride, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    length = tl.minimum(tl.maximum(tl.load(length_ptr + row * length_stride), 0), readable)
    start = (length // BLOCK + tl.program_id(1)) * BLOCK
    for block in range(start, max_length, tl.num_programs(1) * BLOCK):
        tokens = block + tl.arange(0, BLOCK)
        tl.store(
            out_ptr + row * out_stride + tokens,
            tl.full((BLOCK,), float("-inf"), tl.float32),
            mask=(tokens >= length) & (tokens < max_length),
        )


def paged_mqa_logits(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    seq_lens: torch.Tensor,
    page_table: torch.Tensor,
    max_seq_len: int,
    clean_logits: bool = False,
) -> torch.Tensor:
    """Score each query row's compressed tokens: logits[b, t] = scale[t] * sum_h w[b, h] * relu(q[b, h] . k[t]).

    q          [B, 1, 64, 128] float8_e4m3fn, each row's 64*128 values contiguous
    kv_cache   [pages, 64, 1, 132] uint8 or float8_e4m3fn; a page holds 64*128 fp8 values, then 64 fp32 scales;
               stride(0) may exceed 64*132 (a multiple of 4; of 16 to be fast) and the cache may pass 2**31 bytes
    weights    [B, 64] float32, rows contiguous
    seq_lens   [B] or [B, 1] int32, compressed tokens; negative counts as 0, and no more is scored than max_seq_len or
               than the page table has entries for
    page_table [B, P] int32, page numbers; entries past a row's length are not read
    returns    [B, max_seq_len] float32 (row stride rounded up to 64). At t >= seq_lens[b]: -inf with clean_logits, else
               whatever the memory held. A NaN in a live key, scale, query or weight gives NaN.

    Raises ValueError for a shape or stride, TypeError for a dtype, UnsupportedDevice for a card without a table.
    Formula and cache bytes: SGLang 0.5.15, srt/layers/attention/dsv4/indexer.py.
    """
    lengths = _check(q, kv_cache, weights, seq_lens, page_table, max_seq_len)
    card, sms = card_for(q.device)
    rows = q.shape[0]
    out = torch.empty((rows, max(max_seq_len + 63, 64) // 64 * 64), dtype=torch.float32, device=q.device)
    logits = out[:, :max_seq_len]
    readable = min(max_seq_len, page_table.shape[1] * PAGE)
    if rows == 0 or max_seq_len == 0:
        return logits
    keys = kv_cache.view(torch.float8_e4m3fn)
    scales = kv_cache.view(torch.float32)
    if readable and kv_cache.shape[0]:
        for begin in range(0, rows, ROW_BLOCKS[-1]):
            part = slice(begin, begin + ROW_BLOCKS[-1])
            _launch(
                card, sms, q[part], keys, scales, weights[part], lengths[part], page_table[part], out[part], readable
            )
    if clean_logits:
        dsv4_paged_mqa_logits_clean_kernel[(rows, CLEAN_PROGRAMS)](
            lengths, out, max_seq_len, readable, lengths.stride(0), out.stride(0), BLOCK=CLEAN_BLOCK, num_warps=4
        )
    return logits


def _launch(
    card: Card, sms: int, q, keys, scales, weights, lengths, page_table, out, readable: int, config=None
) -> None:
    rows = q.shape[0]
    config = config or choose(card.table, rows)
    dsv4_paged_mqa_logits_kernel[(sms * config.ctas_per_sm,)](
        q, keys, scales, weights, lengths, page_table, out,
        rows, readable, q.stride(0), keys.stride(0), scales.stride(0), weights.stride(0), lengths.stride(0),
        page_table.stride(0), out.stride(0),
        **_constexprs(config, row_block(rows)), num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip


def _constexprs(config: IndexerConfig, block: int, interpret: bool = INTERPRETING) -> dict[str, Any]:
    return {
        "HEADS": HEADS,
        "HEAD_DIM": HEAD_DIM,
        "PAGE": PAGE,
        "TILE": config.tile,
        "ROW_BLOCK": block,
        "INTERPRET": interpret,
    }


def _check(q, kv_cache, weights, seq_lens, page_table, max_seq_len) -> torch.Tensor:
    """Refuse what the kernel does not compute; return the lengths as [B]."""
    if q.dim() != 4 or tuple(q.shape[1:]) != (1, HEADS, HEAD_DIM):
        raise ValueError(
            f"q is {tuple(q.shape)}; the kernel takes [B, 1, {HEADS}, {HEAD_DIM}]: "
            "give every query row of a speculative step a row of its own, with its own length and page-table row"
        )
    rows = q.shape[0]
    if q.dtype != torch.float8_e4m3fn:
        raise TypeError(f"q is {q.dtype}; the kernel takes float8_e4m3fn")
    if q.stride(3) != 1 or q.stride(2) != HEAD_DIM:
        raise ValueError(f"q has strides {q.stride()}; each row's {HEADS}*{HEAD_DIM} values must be contiguous")
    if kv_cache.dim() != 4 or tuple(kv_cache.shape[1:]) != (PAGE, 1, ROW_BYTES):
        raise ValueError(f"kv_cache is {tuple(kv_cache.shape)}; the kernel takes [pages, {PAGE}, 1, {ROW_BYTES}]")
    if kv_cache.dtype not in (torch.uint8, torch.float8_e4m3fn):
        raise TypeError(f"kv_cache is {kv_cache.dtype}; the kernel takes uint8 or float8_e4m3fn")
    if kv_cache.stride(3) != 1 or kv_cache.stride(1) != ROW_BYTES:
        raise ValueError(
            f"kv_cache has strides {kv_cache.stride()}; a page's {PAGE}*{ROW_BYTES} bytes must be contiguous"
        )
    if kv_cache.stride(0) % 4 or kv_cache.storage_offset() % 4:
        raise ValueError(
            f"kv_cache has page stride {kv_cache.stride(0)} and offset {kv_cache.storage_offset()} bytes; "
            "both must be multiples of 4, since the fp32 scales lie among them"
        )
    if tuple(weights.shape) != (rows, HEADS) or weights.dtype != torch.float32 or weights.stride(1) != 1:
        raise ValueError(
            f"weights are {tuple(weights.shape)} {weights.dtype} with strides {weights.stride()}; "
            f"the kernel takes [{rows}, {HEADS}] float32 with contiguous rows"
        )
    lengths = seq_lens[:, 0] if seq_lens.dim() == 2 and seq_lens.shape[1] == 1 else seq_lens
    if tuple(lengths.shape) != (rows,) or lengths.dtype != torch.int32:
        raise ValueError(
            f"seq_lens are {tuple(seq_lens.shape)} {seq_lens.dtype}; the kernel takes [{rows}] or [{rows}, 1] int32"
        )
    if page_table.dim() != 2 or page_table.shape[0] != rows or page_table.dtype != torch.int32:
        raise ValueError(
            f"page_table is {tuple(page_table.shape)} {page_table.dtype}; the kernel takes [{rows}, pages] int32"
        )
    if page_table.shape[1] > 1 and page_table.stride(1) != 1:
        raise ValueError(f"page_table has strides {page_table.stride()}; its rows must be contiguous")
    if max_seq_len < 0:
        raise ValueError(f"max_seq_len is {max_seq_len}; it must not be negative")
    devices = {tensor.device for tensor in (q, kv_cache, weights, seq_lens, page_table)}
    if len(devices) > 1:
        raise ValueError(f"the tensors lie on {sorted(map(str, devices))}; all must be on one device")
    return lengths


def compile_cases(card: Card) -> Iterator[CompileCase]:
    """Yield every compilation that a launch on `card` can ask for, with and without 16-byte aligned page strides."""
    pointers = {
        "q_ptr": "*fp8e4nv", "k_ptr": "*fp8e4nv", "scale_ptr": "*fp32", "weight_ptr": "*fp32",
        "length_ptr": "*i32", "table_ptr": "*i32", "out_ptr": "*fp32",
    }  # fmt: skip
    strides = ("q_stride", "page_stride", "scale_stride", "weight_stride", "out_stride")
    scalars = ("rows", "max_length", *strides[:4], "length_stride", "table_stride", "out_stride")
    for config in TABLE[card.name]:
        for block in ROW_BLOCKS:
            if block // 8 > config.max_rows:
                continue
            for name, aligned in (("aligned", (*pointers, *strides)), ("odd", (*pointers, "q_stride"))):
                constexprs = _constexprs(config, block, interpret=False)
                yield CompileCase(
                    name=f"indexer[tile={config.tile},warps={config.num_warps},rows<={block},{name}]",
                    kernel=dsv4_paged_mqa_logits_kernel,
                    signature={**pointers, **dict.fromkeys(scalars, "i32"), **dict.fromkeys(constexprs, "constexpr")},
                    constexprs=constexprs,
                    num_warps=config.num_warps,
                    num_stages=config.num_stages,
                    aligned=aligned,
                    tensor_cores=True,
                )
    clean_pointers = {"length_ptr": "*i32", "out_ptr": "*fp32"}
    clean_scalars = ("max_length", "readable", "length_stride", "out_stride")
    yield CompileCase(
        name="indexer_clean",
        kernel=dsv4_paged_mqa_logits_clean_kernel,
        signature={**clean_pointers, **dict.fromkeys(clean_scalars, "i32"), "BLOCK": "constexpr"},
        constexprs={"BLOCK": CLEAN_BLOCK},
        num_warps=4,
        num_stages=3,
        aligned=(*clean_pointers, "out_stride"),
    )
