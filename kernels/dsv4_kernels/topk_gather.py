"""Launches of the gathering top-k, and what they compile: three kernels for rows of any length, one for short rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .pdl import launch_options
from .topk_gather_kernels import dsv4_topk_gather_kernel, dsv4_topk_group_key_kernel, dsv4_topk_list_kernel
from .topk_table import TopKConfig

UNALIGNED = (dsv4_topk_gather_kernel,)
"""Kernels that are compiled once, whatever the scores' stride."""


def launch(config: TopKConfig, limit: int, scores, seq_lens, page_table, page_size: int, topk: int, out, raw) -> None:
    """Select from checked rows of up to ``limit`` entries. Grids and scratch depend on shapes alone."""
    rows, listed = scores.shape[0], limit > config.held
    max_stride = config.chunks_of(limit) * config.chunk if listed else 0

    def scratch(size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty((rows, size), dtype=dtype, device=scores.device) if size else out

    maxima, groups = scratch(max_stride), scratch(config.room if listed else 0)
    counts = scratch(2 if listed else 0)
    if listed:
        wide = config.wide and scores.shape[1] % 4 == 0
        dsv4_topk_group_key_kernel[(rows, config.programs_of(rows, limit))](
            scores, seq_lens, maxima, limit, max_stride, scores.stride(0), seq_lens.stride(0),
            **_group_key_constexprs(config, wide), num_warps=config.narrow_warps,
        )  # fmt: skip
        dsv4_topk_list_kernel[(rows,)](
            seq_lens, maxima, groups, counts, limit, topk, max_stride, seq_lens.stride(0),
            **_list_constexprs(config), num_warps=config.floor_warps, **launch_options(config.pdl),
        )  # fmt: skip
    dsv4_topk_gather_kernel[(rows,)](
        scores, seq_lens, page_table, groups, counts, scratch(config.room, torch.int64), out, out if raw is None else raw,
        limit, topk, page_size, int(raw is not None),
        scores.stride(0), seq_lens.stride(0), page_table.stride(0), out.stride(0), 0 if raw is None else raw.stride(0),
        **_gather_constexprs(config, listed), num_warps=config.select_warps, **launch_options(config.pdl and listed),
    )  # fmt: skip


def _group_key_constexprs(config: TopKConfig, wide: bool) -> dict[str, Any]:
    return {"CHUNK": config.chunk, "ROOM": config.room, "WIDE": wide, "PDL": config.pdl}


def _list_constexprs(config: TopKConfig) -> dict[str, Any]:
    return {"CHUNK": config.chunk, "ROOM": config.room, "PDL": config.pdl}


def _gather_constexprs(config: TopKConfig, listed: bool) -> dict[str, Any]:
    """``listed``: rows may be longer than what one program holds."""
    sizes = {"CHUNK": config.chunk, "ROOM": config.room, "MAX_K": config.max_k, "DIRECT": config.direct}
    return {**sizes, "LISTED": listed, "PDL": config.pdl and listed}


def cases(config: TopKConfig) -> Iterator[tuple[str, Any, dict[str, Any], int]]:
    """Name, kernel, constants and warps of each compilation."""
    for wide in sorted({False, config.wide}):
        name = f"group_key,chunk={config.chunk}" + (",wide" if wide else "")
        yield name, dsv4_topk_group_key_kernel, _group_key_constexprs(config, wide), config.narrow_warps
    yield f"list,chunk={config.chunk}", dsv4_topk_list_kernel, _list_constexprs(config), config.floor_warps
    for listed in (False, True):
        name = "gather_" + ("listed" if listed else "held")
        yield (
            f"{name},chunk={config.chunk}",
            dsv4_topk_gather_kernel,
            _gather_constexprs(config, listed),
            config.select_warps,
        )
