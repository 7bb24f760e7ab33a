"""Exact top-k of the indexer's scores, turned into cache indices.

The launches depend on the shapes alone (one for narrow scores, three for wide ones), so that a captured CUDA graph
stays right when lengths change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .card import Card, CompileCase, card_for
from .pdl import launch_options
from .topk_kernels import dsv4_topk_gather_kernel, dsv4_topk_group_key_kernel, dsv4_topk_list_kernel
from .topk_table import TABLE, TopKConfig, choose


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

    A row longer than what one program holds (16,384 entries on a card) is narrowed to groups of its entries first, by as many
    programs as the scores' width suggests. Where many scores equal the k-th, the row is read once more, in order.
    Raises ValueError for a shape, stride, page size or topk, TypeError for a dtype, UnsupportedDevice for a card
    without a table. The order of short rows follows SGLang 0.5.15, srt/layers/attention/dsv4/indexer.py.
    """
    _check(scores, seq_lens, page_table, page_size)
    card, _ = card_for(scores.device)
    config = choose(card.table, topk)
    rows = scores.shape[0]
    if out is None:
        out = torch.empty((rows, topk), dtype=torch.int32, device=scores.device)
    _check_out("out", out, rows, topk, scores.device)
    if out_raw_indices is not None:
        _check_out("out_raw_indices", out_raw_indices, rows, topk, scores.device)
    if rows:
        _launch(config, scores, seq_lens, page_table, page_size, topk, out, out_raw_indices)
    return out


def _launch(config: TopKConfig, scores, seq_lens, page_table, page_size: int, topk: int, out, raw) -> None:
    """Select from checked rows. Grids and scratch depend on shapes alone."""
    rows, limit = scores.shape[0], min(scores.shape[1], page_table.shape[1] * page_size)
    listed = limit > config.held

    def scratch(size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty((rows, size), dtype=dtype, device=scores.device)

    groups = counts = out
    # Before the launches: between them nothing else may come, or they do not overlap.
    kept = scratch(config.room, torch.int64)
    if listed:
        max_stride = config.chunks_of(limit) * config.chunk
        maxima, groups, counts = scratch(max_stride), scratch(config.room), scratch(2)
        wide = scores.shape[1] % 4 == 0  # fours of a row stay within it, and within the tensor
        dsv4_topk_group_key_kernel[(rows, config.programs_of(rows, limit))](  # rows on x: the other two end at 65,535
            scores, seq_lens, maxima, limit, max_stride, scores.stride(0), seq_lens.stride(0),
            **_group_key_constexprs(config, wide), num_warps=config.read_warps,
        )  # fmt: skip
        dsv4_topk_list_kernel[(rows,)](
            seq_lens, maxima, groups, counts, limit, topk, max_stride, seq_lens.stride(0),
            **_list_constexprs(config), num_warps=config.list_warps, **launch_options(config.pdl),
        )  # fmt: skip
    dsv4_topk_gather_kernel[(rows,)](
        scores, seq_lens, page_table, groups, counts, kept, out, out if raw is None else raw,
        limit, topk, page_size, int(raw is not None),
        scores.stride(0), seq_lens.stride(0), page_table.stride(0), out.stride(0), 0 if raw is None else raw.stride(0),
        **_gather_constexprs(config, listed), num_warps=config.gather_warps(listed), **launch_options(config.pdl and listed),
    )  # fmt: skip


def _sizes(config: TopKConfig) -> dict[str, Any]:
    return {"CHUNK": config.chunk, "ROOM": config.room, "RUNS": config.runs}


def _group_key_constexprs(config: TopKConfig, wide: bool) -> dict[str, Any]:
    return {**_sizes(config), "WIDE": wide, "PDL": config.pdl}


def _list_constexprs(config: TopKConfig) -> dict[str, Any]:
    return {**_sizes(config), "PDL": config.pdl}


def _gather_constexprs(config: TopKConfig, listed: bool) -> dict[str, Any]:
    """``listed``: rows may be longer than what one program holds."""
    more = {"MAX_K": config.max_k, "DIRECT": config.direct, "LISTED": listed}
    return {**_sizes(config), **more, "PDL": config.pdl and listed}


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


def _check_out(name: str, out: torch.Tensor, rows: int, topk: int, device: torch.device) -> None:
    if out.device != device:
        raise ValueError(f"{name} lies on {out.device} and the scores on {device}")
    if tuple(out.shape) != (rows, topk) or out.dtype != torch.int32 or (topk > 1 and out.stride(1) != 1):
        raise ValueError(
            f"{name} is {tuple(out.shape)} {out.dtype} with strides {out.stride()}; "
            f"the kernel writes [{rows}, {topk}] int32 with contiguous rows"
        )
    if rows > 1 and out.stride(0) < topk:
        raise ValueError(f"{name} has strides {out.stride()}: its rows of {topk} overlap")


def compile_cases(card: Card) -> Iterator[CompileCase]:
    """Yield every compilation that a launch on `card` can ask for, with rows 16-byte aligned and not."""
    for config in TABLE[card.name]:
        for name, kernel, constexprs, num_warps in _cases(config):
            types = {
                argument: "constexpr" if argument in constexprs else _type_of(argument) for argument in kernel.arg_names
            }
            pointers = tuple(argument for argument in types if argument.endswith("_ptr"))
            reads = kernel is dsv4_topk_group_key_kernel
            strides = {",aligned": ("score_stride",), ",odd": ()} if reads else {"": ()}
            for how, aligned in strides.items():
                yield CompileCase(
                    name=f"topk_{name}[k<={config.max_k},warps={num_warps}{',pdl' * config.pdl}{how}]",
                    kernel=kernel,
                    signature=types,
                    constexprs=constexprs,
                    num_warps=num_warps,
                    num_stages=3,
                    # The others hold up to 16,384 keys in their warps' registers; a few lie on the stack.
                    max_spill_bytes=0 if reads else 128,
                    aligned=(*pointers, *aligned),
                )


def _cases(config: TopKConfig) -> Iterator[tuple[str, Any, dict[str, Any], int]]:
    """Name, kernel, constants and warps of each compilation."""
    for wide in (False, True):
        name = f"group_key,chunk={config.chunk}" + ",wide" * wide
        yield name, dsv4_topk_group_key_kernel, _group_key_constexprs(config, wide), config.read_warps
    yield f"list,chunk={config.chunk}", dsv4_topk_list_kernel, _list_constexprs(config), config.list_warps
    for listed in (False, True):
        name = f"gather,{'listed' if listed else 'held'},chunk={config.chunk}"
        yield name, dsv4_topk_gather_kernel, _gather_constexprs(config, listed), config.gather_warps(listed)


def _type_of(argument: str) -> str:
    if not argument.endswith("_ptr"):
        return "i32"
    return {"score_ptr": "*fp32", "kept_ptr": "*i64"}.get(argument, "*i32")
