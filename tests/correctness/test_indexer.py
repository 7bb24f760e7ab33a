"""The indexer's logits equal both oracles, whatever lies around what a row may read."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels.card import CARDS
from dsv4_kernels.indexer import _launch
from dsv4_kernels.indexer_table import TABLE
from hypothesis import given
from hypothesis import strategies as st
from kit.compare import assert_bitwise_equal
from kit.indexer import assert_logits_close, logits
from kit.strategies_indexer import IndexerCase, build, indexer_cases

NATIVE = torch.cuda.is_available()
CASES = indexer_cases(most_rows=70, most_tokens=20_000) if NATIVE else indexer_cases()


@pytest.mark.field_case("K08")
@pytest.mark.field_case("K18")
@pytest.mark.field_case("K25")
@given(case=CASES, clean=st.booleans())
def test_equals_both_oracles(case: IndexerCase, clean: bool, device: torch.device) -> None:
    inputs = build(case, device)
    assert_logits_close(logits(inputs, clean), inputs, clean)


CONFIGS = [
    pytest.param(config, id=f"{card.name}-{config.tile}-{config.ctas_per_sm}")
    for card in CARDS
    for config in TABLE[card.name]
]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_configuration_equals_both_oracles(config, device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(130, 0, 257)), device)
    cache, lengths = inputs.kv_cache, inputs.seq_lens
    out = torch.full((3, 257), torch.nan, device=device)
    _launch(
        CARDS[0], 3, inputs.q, cache.view(torch.float8_e4m3fn), cache.view(torch.float32), inputs.weights, lengths,
        inputs.page_table, out, 257, config,
    )  # fmt: skip
    assert_logits_close(out, inputs, clean=False)


@pytest.mark.field_case("K18")
@pytest.mark.field_case("K19")
def test_lengths_of_every_residue_and_the_first_entries_side_by_side(device: torch.device) -> None:
    # Compressed lengths of prompts of 3, 4 and 5 tokens, then residues mod 4 around a page and mod 128 around a tile.
    inputs = build(IndexerCase(lengths=(0, 1, 1, *range(61, 69), *range(125, 133), 255, 256, 257)), device)
    assert_logits_close(logits(inputs, clean=True), inputs, clean=True)


@pytest.mark.field_case("K23")
@pytest.mark.parametrize("rows", [31, 32, 33, 64])
def test_all_lengths_zero(rows: int, device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(0,) * rows, max_seq_len=130, spare_pages=3), device)
    assert_logits_close(logits(inputs, clean=True), inputs, clean=True)


@pytest.mark.field_case("K05")
def test_negative_lengths_of_padded_rows_count_as_zero(device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(-4, -3, 0, 1), max_seq_len=70), device)
    assert_logits_close(logits(inputs, clean=True), inputs, clean=True)


@pytest.mark.field_case("K24")
@pytest.mark.parametrize("rows", [64, 65, 96])
def test_more_rows_than_heads(rows: int, device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=tuple(1 + row % 3 for row in range(rows)), strided=True), device)
    assert_logits_close(logits(inputs), inputs, clean=False)


@pytest.mark.field_case("K15")
def test_layers_of_one_storage_do_not_share_scales(device: torch.device) -> None:
    first = build(IndexerCase(lengths=(600,), seed=1), device)
    second = build(IndexerCase(lengths=(600,), seed=2, offset_pages=11), device)
    assert_logits_close(logits(second), second, clean=False)
    other = logits(first.replace(q=second.q, weights=second.weights))
    assert not torch.equal(other, logits(second)), "two layers score alike"
    assert logits(second)[0, :600].unique().numel() > 512, "a row of distinct tokens scores all alike"


@pytest.mark.field_case("K16")
@pytest.mark.parametrize("scale", [1.5, 1.9999999, 0.37, 1e-30])
def test_a_scale_counts_with_all_its_bits(scale: float, device: torch.device) -> None:
    """One row, and token scales that are no powers of two: its logits are those of scales of 1, times the scale."""
    inputs = build(IndexerCase(lengths=(70,)), device)
    raw = inputs.kv_cache.as_strided((inputs.kv_cache.shape[0], 64 * 132), (inputs.kv_cache.stride(0), 1))
    scales = raw[:, 64 * 128 :].view(torch.float32)
    scales[inputs.page_table[0].long()] = 1.0
    plain = logits(inputs)
    scales[inputs.page_table[0].long()] = scale
    assert_bitwise_equal((logits(inputs)[:, :70],), (plain[:, :70] * scale,), f"logits under a scale of {scale}")


@pytest.mark.field_case("K13")
def test_pages_past_2_31_bytes(device: torch.device) -> None:
    from kit.strategies_indexer import cache_view, write_tokens

    inputs = build(IndexerCase(lengths=(64,)), device)
    stride = 2**20
    pages = 2**31 // stride + 2
    # Mapped, not filled: only the last page is written.
    buffer = torch.empty(pages * stride, dtype=torch.uint8, device=device)
    cache = cache_view(buffer, pages, stride)
    write_tokens(cache, [pages - 1], 64, torch.Generator().manual_seed(5), 2)
    table = torch.full_like(inputs.page_table, pages - 1)
    inputs = inputs.replace(kv_cache=cache, page_table=table)
    assert_logits_close(logits(inputs), inputs, clean=False)


@pytest.mark.field_case("K32")
def test_ragged_prefill_rows_keep_their_own_request(device: torch.device) -> None:
    # Two requests of unequal length, one query row a position: rows of a request share pages and differ in length.
    two = build(IndexerCase(lengths=(70, 130)), device)
    request = torch.tensor([0] * 3 + [1] * 4, device=device)
    lengths = torch.tensor([68, 69, 70, 127, 128, 129, 130], dtype=torch.int32, device=device)
    rng = torch.Generator().manual_seed(3)
    q = torch.randn(7, 1, 64, 128, generator=rng).to(torch.float8_e4m3fn).to(device)
    weights = torch.randn(7, 64, generator=rng).to(device)
    rows = two.replace(q=q, weights=weights, seq_lens=lengths, page_table=two.page_table[request])
    assert_logits_close(logits(rows, clean=True), rows, clean=True)


@pytest.mark.field_case("K22")
def test_table_widths_and_strides_may_change_between_calls(device: torch.device) -> None:
    lengths = (65, 130, 3)
    for gap, spare in ((0, 0), (5, 2), (0, 9)):
        inputs = build(IndexerCase(lengths=lengths, table_gap=gap, spare_pages=spare), device)
        assert_logits_close(logits(inputs), inputs, clean=False)


def test_a_length_past_the_table_or_the_maximum_is_cut(device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(130, 100)), device)
    far = inputs.replace(seq_lens=torch.full_like(inputs.seq_lens, 10**6), page_table=inputs.page_table[:, :1])
    assert_logits_close(logits(far, clean=True), far, clean=True)
    cut = inputs.replace(max_seq_len=90)
    assert_logits_close(logits(cut, clean=True), cut, clean=True)


# The interpreter reads fp8's NaN as 480, so that only a scale can be NaN there.
@pytest.mark.parametrize("what", ["scale", "key"] if NATIVE else ["scale"])
def test_a_nan_among_live_keys_shows(what: str, device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(130,)), device)
    raw = inputs.kv_cache[inputs.page_table[0, 1]].view(-1)
    if what == "key":
        raw[5] = 0x7F
    else:
        raw[64 * 128 : 64 * 128 + 4] = 0xFF
    result = logits(inputs)[0]
    assert result[64].isnan(), "a NaN key scored as if it were a number"
    assert not result[:64].isnan().any()
    assert not result[65:130].isnan().any()


@pytest.mark.field_case("K27")
def test_twenty_launches_agree_bitwise(device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(130,)), device)
    first = logits(inputs, clean=True)
    for _ in range(19):
        assert_bitwise_equal((logits(inputs, clean=True),), (first,), "a repeated launch")


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"q": lambda i: i.q[:, :, :32]}, ValueError, "q is"),
        ({"q": lambda i: i.q.float()}, TypeError, "float32"),
        ({"kv_cache": lambda i: i.kv_cache[:, :32]}, ValueError, "kv_cache is"),
        ({"weights": lambda i: i.weights.bfloat16()}, ValueError, "bfloat16"),
        ({"seq_lens": lambda i: i.seq_lens.long()}, ValueError, "int64"),
        ({"page_table": lambda i: i.page_table[:1]}, ValueError, "page_table is"),
        ({"max_seq_len": lambda i: -1}, ValueError, "-1"),
    ],
)
@pytest.mark.field_case("K29")
def test_what_the_kernel_does_not_take_is_refused_by_name(change, error, word, device: torch.device) -> None:
    inputs = build(IndexerCase(lengths=(5, 6)), device)
    wrong = inputs.replace(**{name: make(inputs) for name, make in change.items()})
    with pytest.raises(error, match=word):
        logits(wrong)
