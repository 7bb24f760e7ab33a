"""Sparse-MLA decode inputs from a frozen description: poison comes with generation, so that no test can forget it.

Only tokens that a row attends to are written to a cache; every other byte, padding and slot 0 included, is poison.
Lanes past a row's length hold garbage that would be a legal index, and memory between a strided tensor's elements NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from dsv4_kernels import layout

# 0xFF is NaN as fp8, as bf16 and as ue8m0; 0x7F is NaN as fp8 and 3.4e38 as bf16 under a scale of 1, so that a leak
# shows even where NaN would be masked.
POISONS = (0xFF, 0x7F)
SINKS = ("none", "zero", "normal", "large", "-large", "+inf", "-inf", "huge", "mixed")


@dataclass(frozen=True)
class Source:
    """One cache and what each request takes from it.

    lengths   lanes that count, one a request (negative and past ``topk`` included); None: the argument is left out
    hole      share of counting lanes that hold -1
    holes_at  where they lie: "anywhere", "front", "middle", "tail"
    repeat    share of the attending lanes that name one and the same token
    pad_bytes physical bytes of a page beyond the layout's own padding (a multiple of 16)
    """

    page_size: int
    pages: int
    topk: int
    lengths: tuple[int, ...] | None
    hole: float = 0.0
    holes_at: str = "anywhere"
    repeat: float = 0.0
    pad_bytes: int = 0


@dataclass(frozen=True)
class DecodeCase:
    """A sparse-MLA decode call: ``batch`` requests of ``queries`` rows of ``heads`` heads, one or two caches.

    ``spread`` widens the ue8m0 scales to 2**-spread .. 2**spread; ``strided`` names the inputs that are not contiguous.
    """

    batch: int
    queries: int
    heads: int
    main: Source
    extra: Source | None = None
    sink: str = "normal"
    spread: int = 2
    poison: int = 0xFF
    strided: frozenset[str] = frozenset()
    seed: int = 0


@dataclass(frozen=True)
class DecodeInputs:
    """Arguments of ``sparse_mla_decode``, with the magnitude that score rounding errors scale with."""

    q: torch.Tensor
    k_cache: torch.Tensor
    indices: torch.Tensor
    topk_length: torch.Tensor | None
    attn_sink: torch.Tensor | None
    head_dim_v: int
    softmax_scale: float
    extra_k_cache: torch.Tensor | None = None
    extra_indices: torch.Tensor | None = None
    extra_topk_length: torch.Tensor | None = None
    score_magnitude: float = 0.0

    def arguments(self) -> tuple[Any, ...]:
        """In the order of the public signature."""
        return (
            self.q, self.k_cache, self.indices, self.topk_length, self.attn_sink, self.head_dim_v, self.softmax_scale,
            self.extra_k_cache, self.extra_indices, self.extra_topk_length,
        )  # fmt: skip

    def launch_arguments(self) -> tuple[Any, ...]:
        """In the order of ``dsv4_kernels.sparse_mla.launch`` after its configuration."""
        given = self.arguments()
        return (*given[:5], *given[6:])

    def replace(self, **changes: Any) -> DecodeInputs:
        return replace(self, **changes)


def build(case: DecodeCase, device: torch.device | str) -> DecodeInputs:
    """Generate the inputs of ``case``: values are drawn on the CPU, so that they are the same on every machine."""
    rng = torch.Generator().manual_seed(case.seed)
    q = torch.randn(case.batch, case.queries, case.heads, layout.HEAD_DIM, generator=rng).bfloat16()
    k_cache, indices, longest = _fill(case, case.main, rng, device)
    inputs = DecodeInputs(
        q=spread_out(q.to(device)) if "q" in case.strided else q.to(device),
        k_cache=k_cache,
        indices=spread_out(indices) if "indices" in case.strided else indices,
        topk_length=_lengths(case.main, "topk_length" in case.strided, device),
        attn_sink=make_sink(case.sink, case.heads, rng, device),
        head_dim_v=layout.HEAD_DIM,
        softmax_scale=layout.HEAD_DIM**-0.5,
    )
    if case.extra is not None:
        k_cache, indices, other = _fill(case, case.extra, rng, device)
        longest = max(longest, other)
        inputs = inputs.replace(
            extra_k_cache=k_cache,
            extra_indices=spread_out(indices) if "extra_indices" in case.strided else indices,
            extra_topk_length=_lengths(case.extra, "extra_topk_length" in case.strided, device),
        )
    longest_query = q.float().norm(dim=-1).amax().item() if q.numel() else 0.0
    return inputs.replace(score_magnitude=inputs.softmax_scale * longest_query * longest)


def random_tokens(count: int, spread: int, rng: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed rows (data [n, 576], scales [n, 8] uint8) whose every 64-group has a scale of its own."""
    nope = torch.randn(count, layout.NOPE_DIM, generator=rng).clamp(-layout.FP8_MAX, layout.FP8_MAX)
    exponents = torch.randint(-spread, spread + 1, (count, layout.SCALES), generator=rng) + layout.UE8M0_BIAS
    rope = torch.randn(count, layout.ROPE_DIM, generator=rng) * 2.0 ** torch.randint(
        -spread, spread + 1, (count, 1), generator=rng
    )
    return layout.pack_exact(nope.to(torch.float8_e4m3fn), exponents.to(torch.uint8), rope)


def poisoned_cache(source: Source, poison: int, device: torch.device | str) -> torch.Tensor:
    """A cache of ``source``'s geometry with every byte set to ``poison``."""
    stride = layout.page_bytes(source.page_size) + source.pad_bytes
    buffer = torch.full((source.pages * stride,), poison, dtype=torch.uint8, device=device)
    return layout.view_pages(buffer, source.page_size, stride)


def spread_out(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with a gap after every element, row and matrix, the gaps NaN or -2**31."""
    gap = torch.nan if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    shape = [size + 1 for size in tensor.shape[:-1]] + [2 * tensor.shape[-1]]
    roomy = torch.full(shape, gap, dtype=tensor.dtype, device=tensor.device)
    view = roomy[tuple(slice(0, size) for size in tensor.shape[:-1])][..., ::2]
    view.copy_(tensor)
    return view


def make_sink(kind: str, heads: int, rng: torch.Generator, device: torch.device | str) -> torch.Tensor | None:
    """Attention sinks [heads] fp32 of one of SINKS."""
    normal = torch.randn(heads, generator=rng) * 2
    if kind == "none":
        return None
    if kind == "mixed":
        menu = torch.tensor([0.0, 1.0, -1.0, 1e38, -1e38, math.inf, -math.inf, 60.0])
        return menu[torch.randint(len(menu), (heads,), generator=rng)].to(device)
    fixed = {"zero": 0.0, "large": 1e4, "-large": -1e4, "+inf": math.inf, "-inf": -math.inf, "huge": 3.4e38}
    return (torch.full((heads,), fixed[kind]) if kind in fixed else normal).to(device)


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Inside, ``torch.empty`` returns NaN (or the largest integer): outputs and scratch start poisoned."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = fill


def _fill(
    case: DecodeCase, source: Source, rng: torch.Generator, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """A poisoned cache with the attended tokens written, the indices [B, S, topk], and the longest key's norm."""
    slots = source.pages * source.page_size
    # Slot 0 is where careless masking reads, so it is attended to only by caches that have little else.
    lowest = 1 if slots > 1 else 0
    indices = _garbage(case, source, slots, rng)
    for request in range(case.batch):
        length = source.topk if source.lengths is None else max(0, min(source.lengths[request], source.topk))
        for query in range(case.queries):
            row = torch.randint(lowest, slots, (length,), generator=rng, dtype=torch.int32)
            distinct = torch.randperm(slots - lowest, generator=rng)[:length].int() + lowest
            row[: len(distinct)] = distinct
            row[torch.rand(length, generator=rng) < source.repeat] = lowest
            row[_holes(length, source, rng)] = -1
            indices[request, query, :length] = row
    cache = poisoned_cache(source, case.poison, device)
    attended = _attended(indices, source)
    data, scales = random_tokens(len(attended), case.spread, rng)
    layout.write(cache, attended.to(device), data.to(device), scales.to(device))
    longest = 0.0
    if len(attended):
        longest = layout.unpack(cache, attended.to(device)).norm(dim=-1).amax().item()
    return cache, indices.to(device), longest


def _garbage(case: DecodeCase, source: Source, slots: int, rng: torch.Generator) -> torch.Tensor:
    """Indices no row may use: slot 0, any slot of the cache, the largest int32, -1."""
    shape = (case.batch, case.queries, source.topk)
    anywhere = torch.randint(0, slots, shape, generator=rng)
    menu = torch.stack([torch.zeros_like(anywhere), anywhere, torch.full(shape, 2**31 - 1), torch.full(shape, -1)])
    return menu.gather(0, torch.randint(0, len(menu), (1, *shape), generator=rng))[0].int()


def _holes(length: int, source: Source, rng: torch.Generator) -> torch.Tensor:
    count = round(source.hole * length)
    lanes = torch.arange(length)
    if source.holes_at == "front":
        return lanes < count
    if source.holes_at == "tail":
        return lanes >= length - count
    if source.holes_at == "middle":
        first = (length - count) // 2
        return (lanes >= first) & (lanes < first + count)
    return torch.rand(length, generator=rng) < source.hole


def _attended(indices: torch.Tensor, source: Source) -> torch.Tensor:
    counts = torch.full((indices.shape[0],), source.topk)
    if source.lengths is not None:
        counts = torch.tensor(source.lengths).clamp(0, source.topk)
    live = (torch.arange(source.topk) < counts[:, None, None]) & (indices >= 0)
    return torch.unique(indices[live]).long()


def _lengths(source: Source, strided: bool, device: torch.device | str) -> torch.Tensor | None:
    if source.lengths is None:
        return None
    lengths = torch.tensor(source.lengths, dtype=torch.int32, device=device)
    return spread_out(lengths) if strided else lengths
