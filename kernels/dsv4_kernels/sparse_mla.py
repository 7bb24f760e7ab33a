"""Sparse-MLA decode over the paged fp8 cache: main and extra tokens in one pass, split over tokens, merged by LSE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import layout
from .card import CARDS, INTERPRETING, Card, CompileCase, card_for
from .pdl import launch_options
from .sparse_mla_kernels import dsv4_sparse_mla_decode_kernel, dsv4_sparse_mla_merge_kernel
from .sparse_mla_table import (
    MERGE_INTERPRETED,
    MERGES,
    SPILL_BOUND,
    TABLE,
    DecodeConfig,
    MergeConfig,
    choose,
    choose_merge,
    configurations,
    name_of,
    split_count,
)

LOG2E = 1.4426950408889634
MAX_HEADS = 128
MAX_PROGRAMS = 2**31 - 1
_FLAGS = {"HAS_LENGTH": True, "HAS_EXTRA": True, "HAS_EXTRA_LENGTH": True, "HAS_SINK": True}


def sparse_mla_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend each query row to its chosen tokens of one or two paged caches.

    q                  [B, S, H, 512] bfloat16, any strides; S query rows a request, 1 to 128 heads
    k_cache            [pages, page_size, 1, 584] float8_e4m3fn or uint8 in the V4 layout (``dsv4_kernels.layout``)
    indices            [B, S, topk] int32, any strides: page * page_size + slot, or negative for none, anywhere
    topk_length        [B] int32 or None: lanes of ``indices`` that count; shared by a request's S rows, kept within 0
                       and topk; what lanes past it hold is never used
    attn_sink          [H] float32 or None: adds exp(sink) to the softmax's denominator alone; any value, infinities too
    head_dim_v         512
    softmax_scale      factor of q.k before the softmax
    extra_*            a second cache with its own indices [B, S, extra topk] and lengths; both or neither of the cache
                       and its indices
    returns            out [B, S, H, 512] bfloat16; lse [B, H, S] float32, the natural logarithm of the sum of
                       exp(scale * q.k), without the sink

    A row without tokens gives out 0 and lse -inf. A token named twice counts twice. Index values are trusted: one past
    the cache is read past the cache. Time follows the lengths, not topk. Launches are safe to capture in a CUDA graph:
    grid and scratch depend on shapes alone. Results are bitwise repeatable.

    Raises LayoutError for another cache layout, ValueError for a shape or stride, TypeError for a dtype,
    UnsupportedDevice for a card without a tuning table.
    """
    _check(q, k_cache, indices, topk_length, attn_sink, head_dim_v, extra_k_cache, extra_indices, extra_topk_length)
    card, sms = card_for(q.device)
    rows, heads = q.shape[0] * q.shape[1], q.shape[2]
    capacity = indices.shape[2] + (0 if extra_indices is None else extra_indices.shape[2])
    rule = choose(card.name, rows, heads, INTERPRETING)
    splits = split_count(rule, rows, heads, capacity, sms)
    return launch(
        rule.config, splits, q, k_cache, indices, topk_length, attn_sink, softmax_scale,
        extra_k_cache, extra_indices, extra_topk_length,
    )  # fmt: skip


def launch(
    config: DecodeConfig,
    splits: int,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    softmax_scale: float,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run one given configuration and number of splits on checked arguments, as tuning and proofs of each need."""
    merge = MERGE_INTERPRETED if INTERPRETING else choose_merge(splits)
    batch, queries, heads, _ = q.shape
    rows = batch * queries
    out = torch.empty((batch, queries, heads, layout.HEAD_DIM), dtype=torch.bfloat16, device=q.device)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    if rows == 0:
        return out, lse
    programs = rows * splits * -(-heads // config.block_h)
    merge_programs = rows * -(-heads // merge.heads) * (layout.HEAD_DIM // merge.columns)
    if max(programs, merge_programs) > MAX_PROGRAMS:
        raise ValueError(f"{rows} rows of {heads} heads in {splits} splits exceed a grid's {MAX_PROGRAMS} programs")
    part, part_lse = out, lse
    if splits > 1:
        part = torch.empty((rows, splits, heads, layout.HEAD_DIM), dtype=torch.float32, device=q.device)
        part_lse = torch.empty((rows, splits, heads), dtype=torch.float32, device=q.device)

    # A missing argument still needs a pointer of the right kind; its constexpr keeps it from being read.
    extra = extra_k_cache is not None and extra_indices is not None
    main_pages = layout.geometry(k_cache)
    extra_pages = layout.geometry(extra_k_cache, "extra_k_cache") if extra else main_pages
    extra_index = extra_indices if extra else indices
    sink = lse if attn_sink is None else attn_sink
    length = indices if topk_length is None else topk_length
    extra_length = indices if extra_topk_length is None else extra_topk_length
    flags = {
        "HAS_LENGTH": topk_length is not None,
        "HAS_EXTRA": extra,
        "HAS_EXTRA_LENGTH": extra_topk_length is not None,
        "HAS_SINK": attn_sink is not None,
    }
    _decode_kernel(config)[(programs,)](
        q, k_cache.view(torch.uint8), indices, length,
        extra_k_cache.view(torch.uint8) if extra else k_cache.view(torch.uint8), extra_index, extra_length, sink,
        out, lse, part, part_lse,
        softmax_scale * LOG2E, heads, queries, splits, indices.shape[2], extra_index.shape[2],
        length.stride(0), extra_length.stride(0),
        main_pages.page_size.bit_length() - 1, extra_pages.page_size.bit_length() - 1,
        main_pages.page_stride, extra_pages.page_stride,
        *q.stride(), *indices.stride(), *extra_index.stride(),
        **flags, **_constexprs(config, splits > 1), num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    if splits > 1:
        dsv4_sparse_mla_merge_kernel[(merge_programs,)](
            part, part_lse, length, extra_length, sink, out, lse,
            heads, queries, splits, indices.shape[2], extra_index.shape[2], length.stride(0), extra_length.stride(0),
            **flags, **_merge_constexprs(merge, config), num_warps=merge.num_warps, **launch_options(config.pdl),
        )  # fmt: skip
    return out, lse


def _decode_kernel(config: DecodeConfig) -> Any:
    """The kernel of a configuration, of the same arguments; Gluon is imported where it is wanted, and not before."""
    if config.kernel == "triton":
        return dsv4_sparse_mla_decode_kernel
    from .sparse_mla_hopper import dsv4_sparse_mla_hopper_kernel

    return dsv4_sparse_mla_hopper_kernel


def _constexprs(config: DecodeConfig, split: bool, interpret: bool = INTERPRETING) -> dict[str, Any]:
    if config.kernel == "hopper":
        from .sparse_mla_hopper import TILES

        return {**TILES, "SPLIT": split, "PDL": config.pdl and split}
    tile = {"SPLIT": split, "BLOCK_H": config.block_h, "BLOCK_N": config.block_n}
    return {**tile, "PDL": config.pdl and split, "INTERPRET": interpret}


def _merge_constexprs(merge: MergeConfig, config: DecodeConfig, interpret: bool = INTERPRETING) -> dict[str, Any]:
    tile = {"BLOCK_N": config.block_n, "HEADS": merge.heads, "COLUMNS": merge.columns, "BLOCK_S": merge.splits}
    return {**tile, "PDL": config.pdl, "INTERPRET": interpret}


def _check(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    extra_k_cache: torch.Tensor | None,
    extra_indices: torch.Tensor | None,
    extra_topk_length: torch.Tensor | None,
) -> None:
    """Refuse what the kernel does not compute."""
    if q.dim() != 4 or q.shape[3] != layout.HEAD_DIM or not 1 <= q.shape[2] <= MAX_HEADS:
        raise ValueError(f"q is {tuple(q.shape)}; the kernel takes [B, S, 1 to {MAX_HEADS} heads, {layout.HEAD_DIM}]")
    if q.dtype != torch.bfloat16:
        raise TypeError(f"q is {q.dtype}; the kernel takes bfloat16")
    if head_dim_v != layout.HEAD_DIM:
        raise ValueError(f"head_dim_v is {head_dim_v}; V4's values are all {layout.HEAD_DIM} dimensions of the key")
    batch, queries, heads = q.shape[:3]
    layout.geometry(k_cache, "k_cache")
    _check_indices("indices", indices, "topk_length", topk_length, batch, queries)
    if (extra_k_cache is None) != (extra_indices is None):
        given, missing = (
            ("extra_indices", "extra_k_cache") if extra_k_cache is None else ("extra_k_cache", "extra_indices")
        )
        raise ValueError(f"{given} is given without {missing}; the second cache needs both")
    if extra_k_cache is not None and extra_indices is not None:
        layout.geometry(extra_k_cache, "extra_k_cache")
        _check_indices("extra_indices", extra_indices, "extra_topk_length", extra_topk_length, batch, queries)
    elif extra_topk_length is not None:
        raise ValueError("extra_topk_length is given without extra_k_cache and extra_indices")
    if attn_sink is not None:
        if attn_sink.dtype != torch.float32:
            raise TypeError(f"attn_sink is {attn_sink.dtype}; the kernel takes float32")
        if tuple(attn_sink.shape) != (heads,) or (heads > 1 and attn_sink.stride(0) != 1):
            raise ValueError(
                f"attn_sink is {tuple(attn_sink.shape)} with strides {attn_sink.stride()}; "
                f"the kernel takes [{heads}], contiguous"
            )
    given = (q, k_cache, indices, topk_length, attn_sink, extra_k_cache, extra_indices, extra_topk_length)
    devices = {tensor.device for tensor in given if tensor is not None}
    if len(devices) > 1:
        raise ValueError(f"the tensors lie on {sorted(map(str, devices))}; all must be on one device")


def _check_indices(
    name: str, indices: torch.Tensor, length_name: str, length: torch.Tensor | None, batch: int, queries: int
) -> None:
    if indices.dim() != 3 or tuple(indices.shape[:2]) != (batch, queries):
        raise ValueError(f"{name} is {tuple(indices.shape)}; q's rows make it [{batch}, {queries}, topk]")
    if indices.dtype != torch.int32:
        raise TypeError(f"{name} is {indices.dtype}; the kernel takes int32")
    if length is None:
        return
    if tuple(length.shape) != (batch,):
        raise ValueError(f"{length_name} is {tuple(length.shape)}; the kernel takes one length a request: [{batch}]")
    if length.dtype != torch.int32:
        raise TypeError(f"{length_name} is {length.dtype}; the kernel takes int32")


def compile_cases(card: Card) -> Iterator[CompileCase]:
    """Yield each configuration that a launch on ``card`` can choose, with every option on, which needs the most."""
    decode = {
        "q_ptr": "*bf16", "kv_ptr": "*u8", "index_ptr": "*i32", "length_ptr": "*i32", "extra_kv_ptr": "*u8",
        "extra_index_ptr": "*i32", "extra_length_ptr": "*i32", "sink_ptr": "*fp32",
        "out_ptr": "*bf16", "lse_ptr": "*fp32",
    }  # fmt: skip
    strides = ("page_stride", "extra_page_stride", "q_stride_b", "q_stride_s", "q_stride_h")
    units = ("q_stride_d", "index_stride_k", "extra_index_stride_k")
    for config in configurations(card.name):
        for split in (False, True):
            pointers = decode | {"part_ptr": "*fp32" if split else "*bf16", "part_lse_ptr": "*fp32"}
            constexprs = dict.fromkeys(units, 1) | _FLAGS | _constexprs(config, split, interpret=False)
            kernel = _decode_kernel(config)
            yield CompileCase(
                name=f"sparse_mla[{name_of(config)},{'split' if split else 'whole'}]",
                kernel=kernel,
                signature=_signature(kernel, pointers, constexprs, "scale_log2"),
                constexprs=constexprs,
                num_warps=config.num_warps,
                num_stages=config.num_stages,
                aligned=(*pointers, *strides),
                tensor_cores=True,
                max_spill_bytes=SPILL_BOUND if config.kernel == "triton" else 0,
                gluon=config.kernel == "hopper",
            )
    pointers = {
        "part_ptr": "*fp32", "part_lse_ptr": "*fp32", "length_ptr": "*i32", "extra_length_ptr": "*i32",
        "sink_ptr": "*fp32", "out_ptr": "*bf16", "lse_ptr": "*fp32",
    }  # fmt: skip
    # All that a merge takes from the decode's configuration.
    for decoded in {(config.block_n, config.pdl): config for config in configurations(card.name)}.values():
        for _, merge in MERGES:
            constexprs = _FLAGS | _merge_constexprs(merge, decoded, interpret=False)
            ends = f"columns={merge.columns},splits={merge.splits}" + (",pdl" if decoded.pdl else "")
            yield CompileCase(
                name=f"sparse_mla_merge[n={decoded.block_n},{ends}]",
                kernel=dsv4_sparse_mla_merge_kernel,
                signature=_signature(dsv4_sparse_mla_merge_kernel, pointers, constexprs),
                constexprs=constexprs,
                num_warps=merge.num_warps,
                num_stages=3,
                aligned=tuple(pointers),
            )


def _signature(kernel: Any, pointers: dict[str, str], constexprs: dict[str, Any], *floats: str) -> dict[str, str]:
    kinds = dict.fromkeys(kernel.arg_names, "i32") | dict.fromkeys(floats, "fp32") | pointers
    return kinds | dict.fromkeys(constexprs, "constexpr")


assert {card.name for card in CARDS} == set(TABLE)
