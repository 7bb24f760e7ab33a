"""The top-k is exact: for any scores, any ties, any length, in every slot."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels import topk_transform
from dsv4_kernels.card import CARDS
from dsv4_kernels.topk import _launch
from dsv4_kernels.topk_table import TABLE
from hypothesis import given
from kit.cache import poisoned_memory
from kit.compare import assert_bitwise_equal
from kit.strategies_topk import PATTERNS, TopKCase, build, topk_cases
from kit.topk import UNWRITTEN, assert_topk, run

NATIVE = torch.cuda.is_available()
CASES = topk_cases(most_rows=64, most_tokens=300_000, most_k=2048) if NATIVE else topk_cases()


def check(case: TopKCase, device: torch.device) -> None:
    inputs = build(case, device)
    assert_topk(*run(inputs), inputs)


@pytest.mark.field_case("K06", "K29")
@given(case=CASES)
def test_selects_exactly_what_the_oracle_does(case: TopKCase, device: torch.device) -> None:
    check(case, device)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_listed_or_not_select_alike_for_every_kind_of_scores(pattern: str, device: torch.device) -> None:
    check(TopKCase(lengths=(600, 4500), pattern=pattern, width=4600), device)


CONFIGS = [pytest.param(config, id=f"{card.name}-{config.max_k}") for card in CARDS for config in TABLE[card.name]]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_configuration_selects_exactly(config, device: torch.device) -> None:
    lengths = (config.direct, config.held, config.held + 700)
    inputs = build(TopKCase(lengths=lengths, topk=config.max_k, pattern="few_values"), device)
    out = torch.full((3, config.max_k), UNWRITTEN, dtype=torch.int32, device=device)
    raw = out.clone()
    with poisoned_memory():
        _launch(config, *inputs.arguments(), out, raw)
    assert_topk(out, raw, inputs)


@pytest.mark.field_case("K01")
def test_ties_never_leave_a_hole_among_the_valid_slots(device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(8320,), topk=2048, pattern="all_equal"), device)
    inputs.scores.zero_()
    inputs.scores[0, torch.randperm(8320, generator=torch.Generator().manual_seed(1))[:100]] = 1.0
    assert_topk(*run(inputs), inputs)


@pytest.mark.field_case("K02", "K33")
def test_a_crowded_tie_fills_every_slot_of_a_poisoned_output(device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(9000,), topk=2048, pattern="all_equal"), device)
    inputs.scores[0, 1000:1500] = 5.0
    assert_topk(*run(inputs), inputs)


@pytest.mark.field_case("K04")
@pytest.mark.parametrize("length", [65_536, 262_144, 1_048_576])
def test_rows_as_long_as_a_context(length: int, device: torch.device) -> None:
    check(TopKCase(lengths=(length,)), device)


@pytest.mark.field_case("K05")
def test_negative_lengths_of_padded_rows_give_nothing(device: torch.device) -> None:
    check(TopKCase(lengths=(-4, -3, 0, 1), width=700), device)


@pytest.mark.field_case("K06")
@pytest.mark.parametrize("length", [513, 1025, 4095, 4097])
def test_no_index_past_a_length_that_ends_inside_a_tile(length: int, device: torch.device) -> None:
    check(TopKCase(lengths=(length,), pattern="below_fp16", width=length + 900), device)


@pytest.mark.field_case("K17", "K18")
def test_compressed_lengths_around_k(device: torch.device) -> None:
    # Prompts of 1,024 to 4,096 tokens at a ratio of 4, and the residues of 4 around k.
    check(TopKCase(lengths=(256, 511, 512, 513, 514, 515, 1024)), device)


@pytest.mark.field_case("K19")
def test_the_first_compressed_entries(device: torch.device) -> None:
    check(TopKCase(lengths=(0, 1, 1, 2), width=600), device)


@pytest.mark.field_case("K23")
@pytest.mark.parametrize("rows", [31, 32, 33, 64])
def test_all_lengths_zero(rows: int, device: torch.device) -> None:
    check(TopKCase(lengths=(0,) * rows, width=1), device)


@pytest.mark.field_case("K22")
def test_widths_and_strides_may_change_between_calls(device: torch.device) -> None:
    for strided, spare, width in ((False, 0, None), (True, 3, 900), (False, 1, 1500)):
        check(TopKCase(lengths=(600, 3, 550), strided=strided, spare_pages=spare, width=width), device)


@pytest.mark.field_case("K28", "K27")
@pytest.mark.parametrize("pattern", ["few_values", "normal"])
def test_twenty_launches_agree_bitwise(pattern: str, device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(700, 1500), pattern=pattern), device)
    first = run(inputs)
    for _ in range(19):
        assert_bitwise_equal(run(inputs), first, "a repeated launch")


@pytest.mark.field_case("K15")
def test_a_table_too_short_for_the_scores_bounds_the_row(device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(700, 650)), device)
    short = inputs.replace(page_table=inputs.page_table[:, :9])
    assert_topk(*run(short), short)


@pytest.mark.field_case("K29", "R13")
@pytest.mark.parametrize("topk", [0, 2049])
def test_a_k_without_a_configuration_is_refused_by_name(topk: int, device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(5,)), device)
    with pytest.raises(ValueError, match=f"topk is {topk}"):
        topk_transform(*inputs.replace(topk=topk).arguments())


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda device: torch.empty(2, 511, dtype=torch.int32, device=device), "writes \\[2, 512\\]"),
        (lambda device: torch.empty(1, 512, dtype=torch.int32, device=device).expand(2, 512), "overlap"),
        (lambda device: torch.empty(2, 512, dtype=torch.int32, device="meta"), "lies on meta"),
    ],
    ids=["too narrow", "rows in one place", "elsewhere"],
)
@pytest.mark.parametrize("which", ["out", "out_raw_indices"])
def test_an_output_that_cannot_be_written_is_refused_by_name(which, make, word, device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(5, 6)), device)
    with pytest.raises(ValueError, match=f"{which} .*{word}"):
        topk_transform(*inputs.arguments(), **{which: make(device)})


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        ({"scores": lambda i: i.scores.double()}, TypeError, "float64"),
        ({"scores": lambda i: i.scores.T.contiguous().T}, ValueError, "contiguous"),
        ({"seq_lens": lambda i: i.seq_lens.long()}, ValueError, "int64"),
        ({"page_table": lambda i: i.page_table[:1]}, ValueError, "page_table is"),
        ({"page_size": lambda i: 0}, ValueError, "page_size is 0"),
    ],
)
def test_what_the_kernel_does_not_take_is_refused_by_name(change, error, word, device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(5, 6)), device)
    wrong = inputs.replace(**{name: make(inputs) for name, make in change.items()})
    with pytest.raises(error, match=word):
        topk_transform(*wrong.arguments())
