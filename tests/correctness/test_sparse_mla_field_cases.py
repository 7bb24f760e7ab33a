"""Faults of sparse-MLA kernels that were met in the field, each by its smallest input (rows of field_cases.md)."""

from __future__ import annotations

import math

import pytest
import torch
from dsv4_kernels import layout, reference, sparse_mla_decode
from kit.cache import DecodeCase, Source, build, poisoned_cache, random_tokens
from kit.compare import OUTPUT_ROUNDING, assert_bitwise_equal, assert_decode_close
from kit.decode import assert_matches_oracles, decode, recorded, runnable_configurations
from kit.rounding import rounding_of

CONFIG = runnable_configurations()[0]


@pytest.mark.field_case("K05", "K12", "K23")
@pytest.mark.parametrize("splits", [1, 4])
def test_rows_without_tokens_give_zero_and_read_nothing(splits: int, device: torch.device) -> None:
    main = Source(page_size=256, pages=1, topk=40, lengths=(-4, -3, 0, 1, 40, 40))
    extra = Source(page_size=2, pages=5, topk=8, lengths=(0, -(2**31), 0, 0, 0, -1))
    inputs = build(DecodeCase(6, 1, 8, main, extra, sink="mixed"), device)
    inputs.indices[4] = -1
    out, lse = decode(inputs, CONFIG, splits)
    assert_matches_oracles((out, lse), inputs)
    assert (out[[0, 1, 2, 4]] == 0).all()
    assert (lse[[0, 1, 2, 4]] == -torch.inf).all()


@pytest.mark.field_case("K23")
@pytest.mark.parametrize("batch", [31, 32, 33, 64])
def test_all_lengths_zero(batch: int, device: torch.device) -> None:
    main = Source(page_size=256, pages=1, topk=8, lengths=(0,) * batch)
    inputs = build(DecodeCase(batch, 1, 8, main), device)
    out, lse = decode(inputs, CONFIG, splits=2)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()


@pytest.mark.field_case("K10")
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("sink", [0.0, 5.0, 80.0, 1e4, 1e38, 3.4e38, math.inf, -1e38, -math.inf])
def test_sink_is_in_the_denominator_alone(sink: float, splits: int, device: torch.device) -> None:
    inputs = build(DecodeCase(1, 1, 8, Source(256, 1, 70, (34,)), sink="none"), device)
    plain, plain_lse = decode(inputs, CONFIG, splits)
    out, lse = decode(inputs.replace(attn_sink=torch.full((8,), sink, device=device)), CONFIG, splits)
    assert_bitwise_equal((lse,), (plain_lse,), "lse with a sink")
    share = torch.sigmoid(plain_lse.double() - sink)[:, :, 0]
    if sink == -math.inf:
        assert_bitwise_equal((out,), (plain,), "output with a sink of -inf")
    elif sink > 1e3:
        assert (out == 0).all()
    else:
        # Both outputs are rounded, so that each value may be off by two roundings.
        expected = plain.double() * share[:, None, :, None]
        assert_decode_close((out, lse), (expected, lse), rounding_of(inputs), 2 * OUTPUT_ROUNDING)


@pytest.mark.field_case("K11")
@pytest.mark.parametrize("splits", [1, 2])
def test_lse_is_a_natural_logarithm(splits: int, device: torch.device) -> None:
    """One token: lse is its score. Forty tokens that are one and the same: log(40) more."""
    inputs = build(DecodeCase(1, 1, 8, Source(64, 1, 40, None, repeat=1.0), sink="none"), device)
    key = layout.unpack(inputs.k_cache, inputs.indices[0, 0, :1])[0].double()
    score = inputs.softmax_scale * (inputs.q[0, 0].double() @ key)
    _, lse = decode(inputs, CONFIG, splits)
    torch.testing.assert_close(lse[0, :, 0].double(), score + math.log(40), rtol=0, atol=2e-5)
    _, lse = decode(inputs.replace(indices=inputs.indices[:, :, :1]), CONFIG, splits)
    torch.testing.assert_close(lse[0, :, 0].double(), score, rtol=0, atol=2e-5)


@pytest.mark.field_case("K13")
@pytest.mark.parametrize("page_size", [256, 2])
def test_pages_past_2_31_bytes(page_size: int, device: torch.device) -> None:
    """Two live pages beyond 2**31 and 2**32 bytes; a 32-bit offset would land on other readable bytes of the buffer."""
    stride = layout.page_bytes(page_size)
    pages = 2**32 // stride + 3
    # Reserved, not filled: only the live pages are ever touched.
    buffer = torch.empty(2**31 + pages * stride, dtype=torch.uint8, device=device)
    cache = layout.view_pages(buffer[2**31 :], page_size)
    tokens = torch.tensor([(2**31 // stride + 1) * page_size, (pages - 1) * page_size + 1], device=device)
    data, scales = random_tokens(2, 1, torch.Generator().manual_seed(0))
    layout.write(cache, tokens, data.to(device), scales.to(device))
    base = build(DecodeCase(1, 1, 8, Source(64, 1, 2, None)), device)
    inputs = base.replace(k_cache=cache, indices=tokens.int().view(1, 1, 2), score_magnitude=60.0)
    assert_matches_oracles(decode(inputs), inputs)
    both = inputs.replace(extra_k_cache=cache, extra_indices=inputs.indices)
    assert_matches_oracles(decode(both, CONFIG, splits=2), both)


@pytest.mark.field_case("K13")
def test_query_and_index_rows_past_2_31_elements(device: torch.device) -> None:
    base = build(DecodeCase(3, 1, 8, Source(64, 1, 4, None)), device)
    step = 2**30 + 64
    q = torch.empty(2 * step + base.q[0].numel(), dtype=torch.bfloat16, device=device)
    q = q.as_strided(base.q.shape, (step, *base.q.stride()[1:]))
    q.copy_(base.q)
    indices = torch.empty(2 * step + 4, dtype=torch.int32, device=device).as_strided((3, 1, 4), (step, 4, 1))
    indices.copy_(base.indices)
    inputs = base.replace(q=q, indices=indices)
    assert_matches_oracles(decode(inputs), inputs)


@pytest.mark.field_case("K09", "K20")
def test_a_recorded_launch_follows_lengths_indices_and_padding(device: torch.device) -> None:
    """Recorded on a dummy batch of 4 (no tokens), then run for 3, 4 and 1 real requests with growing lengths."""
    main = Source(page_size=256, pages=2, topk=64, lengths=(0, 0, 0, 0))
    extra = Source(page_size=64, pages=3, topk=64, lengths=(1, 1, 1, 1), hole=1.0)
    inputs = build(DecodeCase(4, 1, 16, main, extra), device)
    (out, lse), run, how = recorded(lambda: sparse_mla_decode(*inputs.arguments()))
    assert how == ("captured" if torch.cuda.is_available() else "relaunched")
    run()
    assert (out == 0).all()
    for requests, length in ((3, 5), (4, 31), (1, 64)):
        lengths = (length,) * requests + (0,) * (4 - requests)
        real = build(
            DecodeCase(4, 1, 16, Source(256, 2, 64, lengths), Source(64, 3, 64, lengths[::-1]), seed=length), device
        )
        for name in ("q", "indices", "topk_length", "attn_sink", "extra_indices", "extra_topk_length"):
            getattr(inputs, name).copy_(getattr(real, name))
        for name in ("k_cache", "extra_k_cache"):
            layout.physical_bytes(getattr(inputs, name)).copy_(layout.physical_bytes(getattr(real, name)))
        run()
        assert_bitwise_equal((out, lse), decode(real), f"{how} launch for {requests} requests of {length}")
        assert_matches_oracles((out, lse), real)


@pytest.mark.field_case("K26")
def test_the_oracle_gives_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    inputs = build(DecodeCase(1, 2, 8, Source(256, 2, 300, (290,)), Source(2, 69, 60, None)), device)
    whole = reference.sparse_mla_decode(*inputs.arguments())
    monkeypatch.setattr("dsv4_kernels.reference.sparse_mla.CHUNK", 7)
    chunked = reference.sparse_mla_decode(*inputs.arguments())
    for actual, expected in zip(chunked, whole, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.field_case("K08", "K35")
def test_the_oracle_reads_no_unreferenced_byte_and_lets_no_referenced_nan_pass(device: torch.device) -> None:
    """An oracle that zeroes what it should not have read would hide the fault it is there for."""
    inputs = build(DecodeCase(1, 1, 8, Source(64, 1, 4, (2,))), device)
    for oracle in (reference.sparse_mla_decode, reference.sparse_mla_decode_rounded):
        assert not oracle(*inputs.arguments())[0].isnan().any()
        referenced = inputs.replace(k_cache=poisoned_cache(Source(64, 1, 4, (2,)), 0xFF, device))
        assert oracle(*referenced.arguments())[0].isnan().all()
    assert decode(referenced)[0].isnan().any()
