"""Inputs of a timed call, drawn on the device: whole caches of real rows, every row of a call at a place of its own.

The correctness suite's generators poison what no row may read and draw on the CPU; at a benchmark's sizes that would
take minutes, and cold reads need tokens that no two rows share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from dsv4_kernels import layout
from kit.arguments import IndexerInputs, TopKInputs
from kit.cache import DecodeInputs

from perfgate.kernelbench.shapes import (
    HC_OUTPUTS,
    HC_WIDTH,
    INDEX_DIM,
    INDEX_HEADS,
    INDEX_PAGE,
    DecodeShape,
    HcShape,
    IndexerShape,
    Shape,
    TopKShape,
)

SETS, FEWER_SETS, BUDGET_BYTES = 4, 2, 8 << 30
"""Sets of inputs that replays rotate over, fewer where they would take more memory than this. A block's replays are a multiple
of either: graphs share memory, which is only right for those that replay in the order of their capture, each as often."""

DISTINCT_PAGES = 512
"""Pages of random content; larger caches repeat them, which no time depends on."""

HC_EPS = 1e-6


@dataclass(frozen=True)
class HcInputs:
    """Arguments of ``hc_prenorm``."""

    x: torch.Tensor
    fn: torch.Tensor
    eps: float = HC_EPS

    def arguments(self) -> tuple[Any, ...]:
        return self.x, self.fn, self.eps


Inputs = DecodeInputs | IndexerInputs | TopKInputs | HcInputs


def sets_of(shape: Shape) -> int:
    """How many sets of inputs to rotate over."""
    return SETS if SETS * shape.work.bytes <= BUDGET_BYTES else FEWER_SETS


def make(shape: Shape, seed: int, device: torch.device) -> Inputs:
    """One set of inputs of a shape; another ``seed`` gives others in other memory."""
    rng = torch.Generator(device=device).manual_seed(seed)
    if isinstance(shape, DecodeShape):
        return _decode(shape, rng, device)
    if isinstance(shape, IndexerShape):
        return _indexer(shape, rng, device)
    if isinstance(shape, TopKShape):
        pages = -(-shape.maximum // INDEX_PAGE)
        scores = torch.randn(shape.batch, shape.maximum, generator=rng, device=device)
        # What lies behind a row's length is anything: here it would be chosen, so that whoever reads it is wrong.
        scores[:, shape.length :] = 1e30
        return TopKInputs(
            scores,
            _full(shape.batch, shape.length, device),
            torch.randperm(shape.batch * pages, generator=rng, device=device).int().view(shape.batch, pages),
            INDEX_PAGE,
            shape.topk,
        )
    assert isinstance(shape, HcShape)
    x = torch.randn(shape.batch, HC_WIDTH, generator=rng, device=device).bfloat16()
    return HcInputs(x, torch.randn(HC_OUTPUTS, HC_WIDTH, generator=rng, device=device) * 0.02)


def _decode(shape: DecodeShape, rng: torch.Generator, device: torch.device) -> DecodeInputs:
    q = torch.randn(shape.batch, 1, shape.heads, layout.HEAD_DIM, generator=rng, device=device).bfloat16()
    cache, indices, longest = _rows(shape.batch, shape.window, layout.WINDOW_PAGE_SIZE, rng, device)
    scale = layout.HEAD_DIM**-0.5
    inputs = DecodeInputs(
        q=q,
        k_cache=cache,
        indices=indices,
        topk_length=_full(shape.batch, shape.window, device),
        attn_sink=torch.randn(shape.heads, generator=rng, device=device),
        head_dim_v=layout.HEAD_DIM,
        softmax_scale=scale,
    )
    if shape.extra:
        # 512 rows are those that the indexer chose (c4); thousands are a whole c128 cache.
        page = layout.C4_PAGE_SIZE if shape.extra <= 1024 else layout.C128_PAGE_SIZE
        cache, indices, other = _rows(shape.batch, shape.extra, page, rng, device)
        longest = max(longest, other)
        lengths = _full(shape.batch, shape.extra, device)
        inputs = replace(inputs, extra_k_cache=cache, extra_indices=indices, extra_topk_length=lengths)
    magnitude = scale * q.float().norm(dim=-1).amax().item() * longest
    return replace(inputs, score_magnitude=magnitude)


def _rows(
    batch: int, rows: int, page_size: int, rng: torch.Generator, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """A full cache, indices [batch, 1, rows] of distinct tokens at random places in it, and the longest key's norm."""
    pages = -(-batch * rows // page_size) + 1
    distinct = min(pages, max(1, DISTINCT_PAGES * 64 // page_size))
    tokens = distinct * page_size
    nope = torch.randn(tokens, layout.NOPE_DIM, generator=rng, device=device)
    exponents = torch.randint(-1, 2, (tokens, layout.SCALES), generator=rng, device=device) + layout.UE8M0_BIAS
    rope = torch.randn(tokens, layout.ROPE_DIM, generator=rng, device=device)
    data, scales = layout.pack_exact(nope.to(torch.float8_e4m3fn), exponents.to(torch.uint8), rope)
    stride = layout.page_bytes(page_size)
    buffer = torch.zeros(distinct, stride, dtype=torch.uint8, device=device)
    cache = layout.view_pages(buffer.view(-1), page_size, stride)
    everything = torch.arange(tokens, device=device)
    layout.write(cache, everything, data, scales)
    longest = max(layout.unpack(cache, part).norm(dim=-1).amax().item() for part in everything.split(4096))
    if pages > distinct:
        buffer = buffer.repeat(-(-pages // distinct), 1)[:pages].contiguous()
        cache = layout.view_pages(buffer.view(-1), page_size, stride)
    chosen = torch.randperm(pages * page_size, generator=rng, device=device)[: batch * rows]
    return cache, chosen.int().view(batch, 1, rows), longest


def _indexer(shape: IndexerShape, rng: torch.Generator, device: torch.device) -> IndexerInputs:
    used = -(-shape.length // INDEX_PAGE)
    pages = shape.batch * used + 1
    distinct = min(pages, DISTINCT_PAGES)
    values = INDEX_PAGE * INDEX_DIM
    stride = INDEX_PAGE * (INDEX_DIM + 4)
    buffer = torch.empty(distinct, stride, dtype=torch.uint8, device=device)
    keys = torch.randn(distinct, values, generator=rng, device=device).to(torch.float8_e4m3fn)
    buffer[:, :values] = keys.view(torch.uint8)
    scales = torch.rand(distinct, INDEX_PAGE, generator=rng, device=device) + 0.5
    buffer[:, values:] = scales.view(torch.uint8)
    if pages > distinct:
        buffer = buffer.repeat(-(-pages // distinct), 1)[:pages].contiguous()
    width = INDEX_DIM + 4
    cache = buffer.view(-1).as_strided((pages, INDEX_PAGE, 1, width), (stride, width, width, 1))
    table = torch.zeros(shape.batch, -(-shape.maximum // INDEX_PAGE), dtype=torch.int32, device=device)
    order = torch.randperm(pages - 1, generator=rng, device=device)[: shape.batch * used] + 1
    table[:, :used] = order.int().view(shape.batch, used)
    q = torch.randn(shape.batch, 1, INDEX_HEADS, INDEX_DIM, generator=rng, device=device)
    return IndexerInputs(
        q.to(torch.float8_e4m3fn),
        cache,
        torch.randn(shape.batch, INDEX_HEADS, generator=rng, device=device),
        _full(shape.batch, shape.length, device),
        table,
        shape.maximum,
    )


def _full(rows: int, value: int, device: torch.device) -> torch.Tensor:
    return torch.full((rows,), value, dtype=torch.int32, device=device)
