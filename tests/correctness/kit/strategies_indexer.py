"""Indexer inputs from a frozen description, and hypothesis strategies of them; poison comes with generation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from kit.arguments import IndexerInputs

HEADS, HEAD_DIM, PAGE = 64, 128, 64
PAGE_BYTES = PAGE * (HEAD_DIM + 4)
GARBAGE_PAGE = 2**30
# Around 0, tiles, pages, k = 512 and 4k / 4, and residues mod 4; negative ones are padded rows.
EDGES = (-4, -1, 0, 1, 2, 3, 4, 5, 31, 63, 64, 65, 66, 127, 128, 129, 130, 191, 192, 255, 256, 257, 511, 512, 513, 1024)


@dataclass(frozen=True)
class IndexerCase:
    """An indexer call: one query row a length, whose tokens lie on pages of its own.

    max_seq_len  None: the longest length
    pad_bytes    physical bytes of a page beyond its own (a multiple of 4)
    spare_pages  table entries past those needed, all garbage; table_gap: ints between the table's rows
    offset_pages pages of other tensors before the cache in the same storage
    poison       what every byte is that no row may read: 0xFF is NaN as fp8 and as fp32, 0x7F NaN as fp8 and 3.4e38
    spread       token scales are 2**-spread .. 2**spread, with any mantissa
    """

    lengths: tuple[int, ...]
    max_seq_len: int | None = None
    pad_bytes: int = 0
    spare_pages: int = 0
    table_gap: int = 0
    offset_pages: int = 0
    poison: int = 0xFF
    spread: int = 2
    column: bool = False
    strided: bool = False
    seed: int = 0


def pages_of(length: int) -> int:
    return (max(length, 0) + PAGE - 1) // PAGE


def poisoned_cache(pages: int, pad_bytes: int, poison: int, device, offset_pages: int = 0) -> torch.Tensor:
    """A cache [pages, 64, 1, 132] uint8 with every byte set to `poison`, `offset_pages` into its storage."""
    stride = PAGE_BYTES + pad_bytes
    buffer = torch.full(((pages + offset_pages) * stride,), poison, dtype=torch.uint8, device=device)
    return cache_view(buffer, pages, stride, offset_pages * stride)


def cache_view(buffer: torch.Tensor, pages: int, stride: int, offset: int = 0) -> torch.Tensor:
    return buffer.as_strided((pages, PAGE, 1, HEAD_DIM + 4), (stride, HEAD_DIM + 4, HEAD_DIM + 4, 1), offset)


def write_tokens(cache: torch.Tensor, pages: list[int], count: int, rng: torch.Generator, spread: int) -> None:
    """Write `count` random tokens and their scales to `pages`, in their order; the rest of the last stays as it is."""
    keys = torch.randn(count, HEAD_DIM, generator=rng).to(torch.float8_e4m3fn).view(torch.uint8)
    exponents = torch.randint(-spread, spread + 1, (count,), generator=rng)
    scales = ((torch.rand(count, generator=rng) + 1.0) * 2.0**exponents).view(torch.uint8).view(count, 4)
    raw = cache.as_strided((cache.shape[0], PAGE_BYTES), (cache.stride(0), 1))
    numbers = torch.tensor(pages)[torch.arange(count) // PAGE].to(cache.device)[:, None]
    slots = (torch.arange(count) % PAGE).to(cache.device)[:, None]
    raw[numbers, slots * HEAD_DIM + torch.arange(HEAD_DIM, device=cache.device)] = keys.to(cache.device)
    raw[numbers, PAGE * HEAD_DIM + slots * 4 + torch.arange(4, device=cache.device)] = scales.to(cache.device)


def build(case: IndexerCase, device: torch.device | str) -> IndexerInputs:
    """Generate the inputs of `case`: values are drawn on the CPU, so that they are the same on every machine."""
    rng = torch.Generator().manual_seed(case.seed)
    rows, needed = len(case.lengths), [pages_of(length) for length in case.lengths]
    # Page 0 is never referenced: a masked lane that gathers it meets poison.
    pages = sum(needed) + 3
    cache = poisoned_cache(pages, case.pad_bytes, case.poison, device, case.offset_pages)
    free = (torch.randperm(pages - 1, generator=rng) + 1).tolist()
    width = max(needed) + case.spare_pages
    table = torch.full((rows, width + case.table_gap), GARBAGE_PAGE, dtype=torch.int32)
    for row, length in enumerate(case.lengths):
        mine = [free.pop() for _ in range(needed[row])]
        table[row, : needed[row]] = torch.tensor(mine, dtype=torch.int32)
        if mine:
            write_tokens(cache, mine, length, rng, case.spread)
    q = torch.randn(rows, 1, HEADS, HEAD_DIM, generator=rng).to(torch.float8_e4m3fn)
    weights = torch.randn(rows, HEADS, generator=rng)
    lengths = torch.tensor(case.lengths, dtype=torch.int32)
    if case.strided:
        q = torch.cat([q.view(torch.uint8), torch.full_like(q.view(torch.uint8), 0x7F)], 1).view(q.dtype)[:, :1]
        weights = torch.cat([weights, torch.full_like(weights, torch.nan)], 1)[:, :HEADS]
        lengths = torch.stack([lengths, torch.full_like(lengths, 2**31 - 1)], 1)[:, 0]
    return IndexerInputs(
        q=q.to(device),
        kv_cache=cache,
        weights=weights.to(device),
        seq_lens=(lengths[:, None] if case.column else lengths).to(device),
        page_table=table.to(device)[:, :width],
        max_seq_len=max(max(case.lengths), 0) if case.max_seq_len is None else case.max_seq_len,
    )


def lengths(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([edge for edge in EDGES if edge <= most]) | st.integers(0, most)


@st.composite
def indexer_cases(draw: st.DrawFn, most_rows: int = 5, most_tokens: int = 700) -> IndexerCase:
    """Any indexer call of up to `most_rows` query rows of up to `most_tokens` tokens."""
    chosen = tuple(draw(st.lists(lengths(most_tokens), min_size=1, max_size=most_rows)))
    longest = max(0, *chosen)
    return IndexerCase(
        lengths=chosen,
        max_seq_len=draw(st.sampled_from([None, longest + 1, 4 * longest + 7, 4096, max(longest - 3, 0)])),
        pad_bytes=draw(st.sampled_from([0, 0, 64, 768, 4, 12])),
        spare_pages=draw(st.sampled_from([0, 1, 7])),
        table_gap=draw(st.sampled_from([0, 3])),
        offset_pages=draw(st.sampled_from([0, 2])),
        poison=draw(st.sampled_from([0xFF, 0x7F])),
        spread=draw(st.integers(0, 6)),
        column=draw(st.booleans()),
        strided=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
