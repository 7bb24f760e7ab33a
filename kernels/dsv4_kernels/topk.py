"""Exact top-k of the indexer's scores, turned into cache indices.

The launches depend on the shapes alone (one for narrow scores, four for wide ones), so that a captured CUDA graph
stays right when lengths change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import topk_gather
from .card import Card, CompileCase, card_for
from .pdl import launch_options
from .topk_kernels import (
    dsv4_topk_floor_kernel,
    dsv4_topk_group_max_kernel,
    dsv4_topk_narrow_kernel,
    dsv4_topk_select_kernel,
)
from .topk_table import TABLE, TopKConfig, choose

SELECTIONS = (dsv4_topk_select_kernel, topk_gather.dsv4_topk_gather_kernel)


def topk_transform(
    scores: torch.Tensor,
    seq_lens: torch.Tensor,
    page_table: torch.Tensor,
    page_size: int,
    topk: int = 512,
    *,
    out: torch.Tensor | None = None,
    out_raw_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """Turn each row's topk largest scores into cache indices page_table[b, i // page_size] * page_size + i % page_size.

    scores     [B, W] float32, rows contiguous; only scores[b, :seq_lens[b]] counts
    seq_lens   [B] int32; negative counts as 0, and no more is read than W or than the page table has entries for
    page_table [B, P] int32, rows contiguous
    page_size  tokens a page, at least 1
    topk       1 to 2048
    out, out_raw_indices  [B, topk] int32, rows contiguous, if given: written and, the first, returned; the second
               gets the indices i themselves
    returns    [B, topk] int32, every slot written. A row no longer than topk gives its indices in order, then -1;
               a longer one topk distinct indices in a fixed but unspecified order.

    Exact for any scores: -inf is a score like any other, -0 equals +0, NaN ranks below -inf (so that a fault upstream
    never displaces a real score), and of equal scores the lowest index wins. Repeated calls agree bit for bit.

    A row longer than the direct limit of topk_table.py is narrowed by 16 interleaved programs before it is selected
    from. Should one of them find more candidates above the row's floor than it has room for (a sixteenth of that limit;
    ordinary scores leave some 40, and ties don't count), the row is read whole once for each bit of the key instead.
    Raises ValueError for a shape, stride, page size or topk, TypeError for a dtype, UnsupportedDevice for a card
    without a table. The order of short rows follows SGLang 0.5.15, srt/layers/attention/dsv4/indexer.py.
    """
    _check(scores, seq_lens, page_table, page_size)
    card, _ = card_for(scores.device)
    config = choose(card.table, topk)
    rows = scores.shape[0]
    if out is None:
        out = torch.empty((rows, topk), dtype=torch.int32, device=scores.device)
    _check_out("out", out, rows, topk)
    if out_raw_indices is not None:
        _check_out("out_raw_indices", out_raw_indices, rows, topk)
    if rows:
        _launch(config, scores, seq_lens, page_table, page_size, topk, out, out_raw_indices)
    return out


def _launch(config: TopKConfig, scores, seq_lens, page_table, page_size: int, topk: int, out, raw) -> None:
    rows = scores.shape[0]
    limit = min(scores.shape[1], page_table.shape[1] * page_size)
    if config.room:
        topk_gather.launch(config, limit, scores, seq_lens, page_table, page_size, topk, out, raw)
        return
    narrowed = limit > config.direct
    wide = config.wide and scores.shape[1] % 4 == 0  # fours of a row stay within it, and within the tensor
    lists = [out, out, out]
    if narrowed:
        sizes = (config.direct, config.splits * config.tie_room, config.splits * 4)
        lists = [torch.empty((rows, size), dtype=torch.int32, device=scores.device) for size in sizes]
        maxima = torch.empty((rows, config.splits * config.groups), dtype=torch.int32, device=scores.device)
        strides = (scores.stride(0), seq_lens.stride(0))
        grid = (rows, config.splits)  # rows on x: the other two end at 65,535
        dsv4_topk_group_max_kernel[grid](
            scores, seq_lens, maxima, limit, *strides,
            **_group_max_constexprs(config, wide), num_warps=config.narrow_warps,
        )  # fmt: skip
        floors = torch.empty((rows,), dtype=torch.int32, device=scores.device)
        dsv4_topk_floor_kernel[(rows,)](
            seq_lens, maxima, floors, limit, topk, seq_lens.stride(0),
            **_floor_constexprs(config), num_warps=config.floor_warps, **launch_options(config.pdl),
        )  # fmt: skip
        dsv4_topk_narrow_kernel[grid](
            scores, seq_lens, floors, *lists, limit, *strides,
            **_narrow_constexprs(config, wide), num_warps=config.narrow_warps, **launch_options(config.pdl),
        )  # fmt: skip
    dsv4_topk_select_kernel[(rows,)](
        scores, seq_lens, page_table, *lists, out, out if raw is None else raw,
        limit, topk, page_size, int(raw is not None),
        scores.stride(0), seq_lens.stride(0), page_table.stride(0), out.stride(0), 0 if raw is None else raw.stride(0),
        **_select_constexprs(config, narrowed), num_warps=config.select_warps, **launch_options(config.pdl and narrowed),
    )  # fmt: skip


def _group_max_constexprs(config: TopKConfig, wide: bool) -> dict[str, Any]:
    sizes = {"SPLITS": config.splits, "GROUPS": config.groups, "DEPTH": config.step // config.groups}
    return {**sizes, "DIRECT": config.direct, "WIDE": wide, "PDL": config.pdl}


def _floor_constexprs(config: TopKConfig) -> dict[str, Any]:
    return {"MAXIMA": config.splits * config.groups, "DIRECT": config.direct, "PDL": config.pdl}


def _rooms(config: TopKConfig) -> dict[str, Any]:
    return {"ABOVE_ROOM": config.above_room, "TIE_ROOM": config.tie_room}


def _narrow_constexprs(config: TopKConfig, wide: bool) -> dict[str, Any]:
    return {**_group_max_constexprs(config, wide), **_rooms(config)}


def _select_constexprs(config: TopKConfig, narrowed: bool) -> dict[str, Any]:
    sizes = {"SPLITS": config.splits, "MAX_K": config.max_k, "DIRECT": config.direct}
    return {**sizes, **_rooms(config), "NARROWED": narrowed, "PDL": config.pdl and narrowed}


def _check(scores, seq_lens, page_table, page_size) -> None:
    if scores.dtype != torch.float32:
        raise TypeError(f"scores are {scores.dtype}; the kernel takes float32")
    if scores.dim() != 2 or (scores.shape[1] > 1 and scores.stride(1) != 1):
        raise ValueError(
            f"scores are {tuple(scores.shape)} with strides {scores.stride()}; "
            "the kernel takes [B, W] with contiguous rows"
        )
    rows = scores.shape[0]
    if tuple(seq_lens.shape) != (rows,) or seq_lens.dtype != torch.int32:
        raise ValueError(f"seq_lens are {tuple(seq_lens.shape)} {seq_lens.dtype}; the kernel takes [{rows}] int32")
    if page_table.dim() != 2 or page_table.shape[0] != rows or page_table.dtype != torch.int32:
        raise ValueError(
            f"page_table is {tuple(page_table.shape)} {page_table.dtype}; the kernel takes [{rows}, pages] int32"
        )
    if page_table.shape[1] > 1 and page_table.stride(1) != 1:
        raise ValueError(f"page_table has strides {page_table.stride()}; its rows must be contiguous")
    if page_size < 1:
        raise ValueError(f"page_size is {page_size}; it must be at least 1")
    devices = {tensor.device for tensor in (scores, seq_lens, page_table)}
    if len(devices) > 1:
        raise ValueError(f"the tensors lie on {sorted(map(str, devices))}; all must be on one device")


def _check_out(name: str, out: torch.Tensor, rows: int, topk: int) -> None:
    if tuple(out.shape) != (rows, topk) or out.dtype != torch.int32 or (topk > 1 and out.stride(1) != 1):
        raise ValueError(
            f"{name} is {tuple(out.shape)} {out.dtype} with strides {out.stride()}; "
            f"the kernel writes [{rows}, {topk}] int32 with contiguous rows"
        )


def compile_cases(card: Card) -> Iterator[CompileCase]:
    """Yield every compilation that a launch on `card` can ask for, with rows 16-byte aligned and not."""
    for config in TABLE[card.name]:
        for name, kernel, constexprs, num_warps in topk_gather.cases(config) if config.room else _cases(config):
            types = {
                argument: "constexpr" if argument in constexprs else _type_of(argument) for argument in kernel.arg_names
            }
            pointers = tuple(argument for argument in types if argument.endswith("_ptr"))
            strides = {"aligned": ("score_stride",), "odd": ()} if _aligns(kernel) else {"": ()}
            for how, aligned in strides.items():
                yield CompileCase(
                    name=f"topk_{name}[k<={config.max_k},warps={num_warps}{',pdl' * config.pdl}{how and ','}{how}]",
                    kernel=kernel,
                    signature=types,
                    constexprs=constexprs,
                    num_warps=num_warps,
                    num_stages=3,
                    # The selection for k up to 2048 holds 8192 keys in 16 warps' registers; a few lie on the stack.
                    max_spill_bytes=128 if kernel in SELECTIONS else 0,
                    aligned=(*pointers, *aligned),
                )


def _cases(config: TopKConfig) -> Iterator[tuple[str, Any, dict[str, Any], int]]:
    """Name, kernel, constants and warps of each compilation of a configuration that narrows."""
    yield "floor", dsv4_topk_floor_kernel, _floor_constexprs(config), config.floor_warps
    for wide in sorted({False, config.wide}):
        more = ",wide" if wide else ""
        yield f"group_max{more}", dsv4_topk_group_max_kernel, _group_max_constexprs(config, wide), config.narrow_warps
        yield f"narrow{more}", dsv4_topk_narrow_kernel, _narrow_constexprs(config, wide), config.narrow_warps
    for narrowed in (False, True):
        name = "select_narrowed" if narrowed else "select_direct"
        yield name, dsv4_topk_select_kernel, _select_constexprs(config, narrowed), config.select_warps


def _aligns(kernel: Any) -> bool:
    """Whether Triton compiles ``kernel`` another time for rows whose stride is a multiple of 16."""
    return "score_stride" in kernel.arg_names and kernel not in topk_gather.UNALIGNED


def _type_of(argument: str) -> str:
    if not argument.endswith("_ptr"):
        return "i32"
    return {"score_ptr": "*fp32", "kept_ptr": "*i64"}.get(argument, "*i32")
