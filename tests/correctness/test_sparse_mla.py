"""The sparse-MLA decode equals both oracles, whatever the shapes, lengths, holes, sinks, strides and configuration."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels import layout
from dsv4_kernels.sparse_mla_table import DecodeConfig
from hypothesis import given
from hypothesis import strategies as st
from kit.cache import DecodeCase, Source, build, poisoned_cache, random_tokens
from kit.decode import assert_matches_oracles, decode, name_of, runnable_configurations
from kit.strategies_mla import HEADS, ODD_HEADS, decode_cases

ON_GPU = torch.cuda.is_available()
# Interpreted, a tile of tokens takes some 20 ms whatever its size.
ROWS, LANES = (40, 700) if ON_GPU else (3, 70)


@pytest.mark.field_case("K33")
@given(case=decode_cases(most_rows=ROWS, most_lanes=LANES, heads=(*HEADS, *ODD_HEADS) if ON_GPU else ()))
def test_equals_both_oracles(case: DecodeCase, device: torch.device) -> None:
    inputs = build(case, device)
    assert_matches_oracles(decode(inputs), inputs)


@pytest.mark.field_case("K29", "K30")
@pytest.mark.parametrize("config", runnable_configurations(), ids=name_of)
@given(case=decode_cases(most_rows=ROWS // 2 or 1, most_lanes=LANES, extra=True), splits=st.sampled_from([1, 2, 3, 16]))
def test_every_configuration_equals_both_oracles(
    config: DecodeConfig, case: DecodeCase, splits: int, device: torch.device
) -> None:
    inputs = build(case, device)
    assert_matches_oracles(decode(inputs, config, splits), inputs)


@pytest.mark.field_case("K29")
@pytest.mark.parametrize("topk", [128, 192, 512, 1024])
@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
def test_any_heads_with_any_topk(heads: int, topk: int, device: torch.device) -> None:
    length = topk if ON_GPU else topk // 32 + 1
    main = Source(page_size=256, pages=5, topk=topk, lengths=(length,))
    inputs = build(DecodeCase(batch=1, queries=1, heads=heads, main=main, seed=heads + topk), device)
    assert_matches_oracles(decode(inputs), inputs)


@pytest.mark.field_case("K17", "K18", "K19")
def test_lengths_of_every_residue_and_edge_side_by_side(device: torch.device) -> None:
    edges = (0, 1, 2, 3, 4, 5, 31, 32, 33, 34, 63, 65, 127, 128)
    lengths = (*edges, 130, 131, 511, 512, 513, 514, 515) if ON_GPU else edges
    main = Source(page_size=256, pages=3, topk=128, lengths=tuple(min(length, 128) for length in lengths))
    extra = Source(page_size=64, pages=9, topk=513, lengths=tuple(reversed(lengths)))
    inputs = build(DecodeCase(batch=len(lengths), queries=1, heads=8, main=main, extra=extra, seed=3), device)
    assert_matches_oracles(decode(inputs), inputs)


@pytest.mark.field_case("K08", "K24")
@pytest.mark.parametrize("rows", [64, 65, 96])
def test_more_rows_than_heads_or_than_a_decode_batch(rows: int, device: torch.device) -> None:
    # Lanes past the lengths hold slot 0 and other slots of the cache, all of them NaN.
    main = Source(page_size=256, pages=3, topk=128, lengths=tuple(row % 30 for row in range(rows)))
    inputs = build(DecodeCase(batch=rows, queries=1, heads=8, main=main, seed=rows), device)
    assert_matches_oracles(decode(inputs), inputs)


@pytest.mark.field_case("K25")
@pytest.mark.parametrize("page_size", [256, 64, 2])
def test_every_slot_of_a_page_is_found(page_size: int, device: torch.device) -> None:
    """A row that attends to one token returns that token, rounded to bf16, and nothing of its neighbours."""
    step = 1 if ON_GPU else max(1, page_size // 4 + 1)
    slots = range(page_size - 1, 3 * page_size, step)
    main = Source(page_size=page_size, pages=3, topk=1, lengths=None)
    inputs = build(DecodeCase(batch=len(slots), queries=1, heads=8, main=main, sink="none"), device)
    tokens = torch.tensor(list(slots), device=device)
    inputs = inputs.replace(indices=tokens.int().view(-1, 1, 1), k_cache=_distinct_tokens(main, tokens, device))
    out, _ = decode(inputs)
    expected = layout.unpack(inputs.k_cache, tokens).bfloat16()
    assert torch.equal(out, expected[:, None, None].expand_as(out))


@pytest.mark.field_case("K16")
def test_every_scale_byte_counts_for_its_own_group_alone(device: torch.device) -> None:
    """A different scale for each group, a single request of a single row; below 2**-115 values are subnormal."""
    main = Source(page_size=64, pages=1, topk=1, lengths=None)
    base = build(DecodeCase(batch=1, queries=1, heads=1, main=main, sink="none"), device)
    for first in (12, 60, 96, 121, 130, 180):
        scales = (torch.arange(layout.SCALES) * 7 % 5 * 3 + first).to(torch.uint8)[None]
        nope = torch.randn(1, layout.NOPE_DIM, generator=torch.Generator().manual_seed(first)).to(torch.float8_e4m3fn)
        data, padded = layout.pack_exact(nope, scales, torch.zeros(1, layout.ROPE_DIM))
        padded[:, layout.SCALES] = 0xFF
        cache = layout.allocate(1, 64, device, fill=0xFF)
        layout.write(cache, torch.tensor([5], device=device), data.to(device), padded.to(device))
        # A query of zeros keeps the scores finite under the largest scales.
        inputs = base.replace(k_cache=cache, indices=torch.full_like(base.indices, 5), q=torch.zeros_like(base.q))
        out, lse = decode(inputs)
        assert torch.equal(out[0, 0, 0], layout.unpack(cache, torch.tensor([5], device=device))[0].bfloat16())
        assert lse.item() == 0.0


def _distinct_tokens(source: Source, tokens: torch.Tensor, device: torch.device) -> torch.Tensor:
    cache = poisoned_cache(source, 0xFF, device)
    data, scales = random_tokens(len(tokens), 2, torch.Generator().manual_seed(1))
    layout.write(cache, tokens, data.to(device), scales.to(device))
    return cache
