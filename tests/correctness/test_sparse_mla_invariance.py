"""Changes to the inputs that must not change the sparse-MLA decode's results, or change them in a known way."""

from __future__ import annotations

import math

import pytest
import torch
from dsv4_kernels import layout
from dsv4_kernels.sparse_mla_table import DecodeConfig
from hypothesis import given
from hypothesis import strategies as st
from kit.cache import DecodeCase, DecodeInputs, Source, build, make_sink, poisoned_cache
from kit.compare import assert_bitwise_equal, assert_decode_close
from kit.decode import assert_matches_oracles, decode, name_of, runnable_configurations
from kit.rounding import rounding_of
from kit.strategies_mla import decode_cases

CONFIG = runnable_configurations()[0]
WINDOW = Source(page_size=256, pages=3, topk=50, lengths=(33, 7, 0))
EXTRA = Source(page_size=64, pages=5, topk=70, lengths=(3, 33, 9), hole=0.1)
CASE = DecodeCase(batch=3, queries=1, heads=16, main=WINDOW, extra=EXTRA, seed=11)


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_permuting_requests_permutes_results_bitwise(order: list[int], device: torch.device) -> None:
    inputs = build(CASE, device)
    shuffled = _take(inputs, torch.tensor(order, device=device))
    out, lse = decode(inputs, CONFIG, splits=2)
    assert_bitwise_equal(decode(shuffled, CONFIG, splits=2), (out[order], lse[order]), "permuted requests")


@pytest.mark.field_case("K08", "K31")
@given(case=decode_cases(most_rows=2, most_lanes=50), splits=st.sampled_from([1, 3]))
def test_unreferenced_bytes_and_lanes_do_not_matter(case: DecodeCase, splits: int, device: torch.device) -> None:
    inputs = build(case, device)
    other = _with_other_garbage(case, inputs)
    assert_bitwise_equal(decode(other, CONFIG, splits), decode(inputs, CONFIG, splits), "other garbage")


@given(cut=st.integers(0, 40), splits=st.sampled_from([1, 4]))
def test_where_main_ends_and_extra_begins_does_not_matter(cut: int, splits: int, device: torch.device) -> None:
    source = Source(page_size=64, pages=3, topk=40, lengths=None)
    whole = build(DecodeCase(batch=1, queries=1, heads=8, main=source, seed=cut), device)
    lengths = torch.tensor([cut], dtype=torch.int32, device=device)
    parted = whole.replace(
        topk_length=lengths,
        extra_k_cache=whole.k_cache,
        extra_indices=torch.roll(whole.indices, -cut, dims=2),
        extra_topk_length=40 - lengths,
    )
    actual = decode(parted, CONFIG, splits)
    assert_decode_close(actual, decode(whole, CONFIG), rounding_of(whole))
    assert_matches_oracles(actual, whole)


@pytest.mark.field_case("K11", "K12", "K27")
@pytest.mark.parametrize("config", runnable_configurations(), ids=name_of)
def test_number_of_splits_does_not_matter(config: DecodeConfig, device: torch.device) -> None:
    inputs = build(CASE, device)
    whole = decode(inputs, config, splits=1)
    for splits in (2, 64):
        assert_decode_close(decode(inputs, config, splits), whole, rounding_of(inputs))


@pytest.mark.field_case("R10")
@pytest.mark.parametrize("heads", [1, 8, 15])
def test_more_heads_leave_the_first_ones_alone_bitwise(heads: int, device: torch.device) -> None:
    inputs = build(CASE, device)
    fewer = inputs.replace(q=inputs.q[:, :, :heads], attn_sink=inputs.attn_sink[:heads])
    out, lse = decode(inputs, CONFIG)
    assert_bitwise_equal(decode(fewer, CONFIG), (out[:, :, :heads], lse[:, :heads]), "fewer heads")


@given(seed=st.integers(0, 99))
def test_holes_count_for_nothing(seed: int, device: torch.device) -> None:
    """The same tokens in the same order, with and without -1 between them."""
    inputs = build(DecodeCase(1, 1, 8, Source(64, 2, 30, None), seed=seed), device)
    holed = torch.full((1, 1, 75), -1, dtype=torch.int32, device=device)
    rng = torch.Generator().manual_seed(seed)
    holed[0, 0, torch.randperm(75, generator=rng)[:30].sort().values.to(device)] = inputs.indices[0, 0]
    actual = decode(inputs.replace(indices=holed), CONFIG)
    assert_decode_close(actual, decode(inputs, CONFIG), rounding_of(inputs))


def test_a_repeated_row_of_tokens_adds_log_2_to_lse(device: torch.device) -> None:
    inputs = build(DecodeCase(1, 1, 8, Source(64, 2, 20, None), sink="none"), device)
    out, lse = decode(inputs)
    doubled, doubled_lse = decode(inputs.replace(indices=inputs.indices.repeat(1, 1, 2)))
    assert_decode_close((doubled, doubled_lse - math.log(2)), (out, lse), rounding_of(inputs))


@pytest.mark.field_case("K22")
def test_widths_and_strides_may_change_between_calls(device: torch.device) -> None:
    """Rows past the first are where a stale stride shows: the same lengths in index tensors of three widths."""
    narrow = build(CASE, device)
    expected = decode(narrow, CONFIG)
    for width in (51, 300):
        wide = torch.full((3, 1, width), 2**31 - 1, dtype=torch.int32, device=device)
        wide[:, :, :50] = narrow.indices
        assert_bitwise_equal(decode(narrow.replace(indices=wide), CONFIG), expected, f"index tensor {width} wide")


@pytest.mark.field_case("K27", "K31")
@pytest.mark.parametrize("splits", [1, 2, 16])
def test_twenty_launches_agree_bitwise(splits: int, device: torch.device) -> None:
    batch, queries = (8, 2) if torch.cuda.is_available() else (1, 1)
    main = Source(256, 3, 40, (30,) * batch, hole=0.3)
    extra = Source(2, 69, 40, (28,) * batch, hole=0.3)
    inputs = build(DecodeCase(batch, queries, heads=16, main=main, extra=extra), device)
    first = decode(inputs, CONFIG, splits)
    assert_matches_oracles(first, inputs)
    for launch in range(19):
        assert_bitwise_equal(decode(inputs, CONFIG, splits), first, f"launch {launch + 2}")


def _take(inputs: DecodeInputs, order: torch.Tensor) -> DecodeInputs:
    return inputs.replace(
        q=inputs.q[order],
        indices=inputs.indices[order],
        topk_length=inputs.topk_length[order],
        extra_indices=inputs.extra_indices[order],
        extra_topk_length=inputs.extra_topk_length[order],
    )


def _with_other_garbage(case: DecodeCase, inputs: DecodeInputs) -> DecodeInputs:
    """Every byte that no lane refers to becomes 0, every lane past a length -5."""
    changes = {}
    for source, prefix, length in (
        (case.main, "", "topk_length"),
        (case.extra, "extra_", "extra_topk_length"),
    ):
        if source is None:
            continue
        old_cache = getattr(inputs, f"{prefix}k_cache")
        indices = getattr(inputs, f"{prefix}indices").clone()
        cache = poisoned_cache(source, 0x00, old_cache.device)
        if source.lengths is not None:
            lanes = torch.arange(source.topk, device=indices.device)
            dead = lanes >= getattr(inputs, length).clamp(min=0)[:, None, None]
            indices = indices.masked_fill(dead, -5)
        _copy_tokens(old_cache, cache, indices[indices >= 0].long())
        changes |= {f"{prefix}k_cache": cache, f"{prefix}indices": indices}
    return inputs.replace(**changes)


def _copy_tokens(old: torch.Tensor, new: torch.Tensor, tokens: torch.Tensor) -> None:
    old_bytes, new_bytes = layout.physical_bytes(old), layout.physical_bytes(new)
    pages, data_at, scales_at = layout.addresses(layout.geometry(old), tokens)
    for start, size in ((data_at, layout.DATA_BYTES), (scales_at, layout.SCALE_BYTES)):
        at = pages[:, None], start[:, None] + torch.arange(size, device=tokens.device)
        new_bytes[at] = old_bytes[at]


def test_sinks_of_every_kind_are_drawn(device: torch.device) -> None:
    """The strategies promise infinities: a generator that lost them would let every sink test pass."""
    drawn = make_sink("mixed", 200, torch.Generator().manual_seed(0), device)
    assert {math.inf, -math.inf, 0.0} <= set(drawn.tolist())
