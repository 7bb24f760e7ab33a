"""The top-k on rows longer than a program holds: groups, their list, and what is left when a list does not settle it."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import torch
from dsv4_kernels import topk
from dsv4_kernels.topk import _launch
from dsv4_kernels.topk_table import TABLE, TopKConfig
from hypothesis import given
from hypothesis import strategies as st
from kit import launches
from kit.arguments import TopKInputs
from kit.cache import poisoned_memory
from kit.compare import assert_bitwise_equal
from kit.strategies_topk import PATTERNS, TopKCase, build, topk_cases
from kit.topk import UNWRITTEN, assert_topk

V4 = TABLE["sm_90"][0]
SMALL = TopKConfig(
    max_k=32,
    room=64,
    runs=4,
    direct=128,
    chunk=64,
    programs=12,
    read_warps=4,
    list_warps=4,
    select_warps=4,
    held_warps=4,
)
"""The same passes on short rows: 128 entries directly, 1,024 without a list, 16,384 with the list's maxima held."""
OPTIONS = [SMALL, replace(SMALL, room=128, runs=1, direct=256, chunk=16, pdl=True)]
EITHER = pytest.mark.parametrize("config", OPTIONS, ids=["groups of 16", "groups of 4"])


def gathered(config: TopKConfig, inputs: TopKInputs) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.full((inputs.scores.shape[0], inputs.topk), UNWRITTEN, dtype=torch.int32, device=inputs.scores.device)
    raw = out.clone()
    with poisoned_memory():
        _launch(config, *inputs.arguments(), out, raw)
    return out, raw


@pytest.mark.field_case("K06", "K29")
@given(case=topk_cases(most_rows=4, most_tokens=6000, most_k=32), config=st.sampled_from(OPTIONS))
def test_selects_exactly_what_the_oracle_does(case: TopKCase, config: TopKConfig, device: torch.device) -> None:
    inputs = build(case, device)
    assert_topk(*gathered(config, inputs), inputs)


@EITHER
@pytest.mark.parametrize("topk", [1, 20, 32])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_of_every_way_side_by_side(pattern: str, topk: int, config: TopKConfig, device: torch.device) -> None:
    lengths = (0, 1, topk, topk + 1, 128, 129, 1024, 1025, 1500, 4097, 5000)
    inputs = build(TopKCase(lengths=lengths, pattern=pattern, topk=topk, width=5000), device)
    assert_topk(*gathered(config, inputs), inputs)


@EITHER
@pytest.mark.parametrize("pattern", ["normal", "few_values", "crowded", "some_nan", "all_nan"])
def test_more_groups_than_a_program_holds(pattern: str, config: TopKConfig, device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(16_384, 16_385, 17_000), pattern=pattern, topk=32, width=17_000), device)
    assert_topk(*gathered(config, inputs), inputs)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_as_long_as_a_context(pattern: str, device: torch.device) -> None:
    lengths = (600, 4097, 16_384, 16_385, 65_536)
    inputs = build(TopKCase(lengths=lengths, pattern=pattern, width=65_536), device)
    assert_topk(*gathered(V4, inputs), inputs)


def test_scores_as_wide_as_a_server_with_a_context_of_a_million_has_them(device: torch.device) -> None:
    """4,097 pages of 64: more than 16,384 groups, were they counted by the width."""
    inputs = build(TopKCase(lengths=(262_144, 20_000), pattern="few_values", width=4097 * 64), device)
    assert_topk(*gathered(V4, inputs), inputs)


def test_work_follows_the_rows_own_length(device: torch.device) -> None:
    """In scores 16 times as wide, the first pass writes the maxima of the row's own groups, and no others are looked at."""
    inputs = build(TopKCase(lengths=(2000, 1100, 600), topk=32, width=32_000), device)
    made = []
    empty = torch.empty

    def poisoned(*shape, **kind) -> torch.Tensor:
        made.append(empty(*shape, **kind).fill_(0x7FFFFFFF))
        return made[-1]

    out = torch.full((3, 32), UNWRITTEN, dtype=torch.int32, device=device)
    raw = out.clone()
    with mock.patch.object(torch, "empty", poisoned):
        _launch(SMALL, *inputs.arguments(), out, raw)
    assert_topk(out, raw, inputs)
    maxima = made[1]
    assert maxima.shape[1] == 2048
    for row, groups in enumerate((128, 128, 0)):
        assert (maxima[row, :groups] != 0x7FFFFFFF).all()
        assert (maxima[row, groups:] == 0x7FFFFFFF).all(), f"row {row}: the maxima of groups that it has not"


def test_a_longer_maximum_launches_no_more_programs_and_compiles_nothing_else() -> None:
    meta = torch.device("meta")
    seen = set()
    for width in (65_536, 70_000, 131_072, 262_208, 1_048_576):
        integers = [
            torch.empty(*shape, dtype=torch.int32, device=meta) for shape in ((64,), (64, width // 64), (64, 512))
        ]
        with launches.recorded(topk) as log:
            _launch(V4, torch.empty(64, width, device=meta), *integers[:2], 64, 512, integers[2], None)
        seen.add(tuple((launch.kernel, launch.grid, launch.keywords) for launch in log))
    assert len(seen) == 1, "eager calls compile kernels, or launch programs, by the scores' width"


def test_winners_in_one_place_share_no_group(device: torch.device) -> None:
    """A row of 65,536 whose 512 best lie side by side: 128 groups would hold them if groups were neighbours."""
    inputs = build(TopKCase(lengths=(65_536,)), device)
    inputs.scores[0, 30_000:30_512] += 100
    assert_topk(*gathered(V4, inputs), inputs)


@pytest.mark.field_case("K02", "K33")
@pytest.mark.parametrize("above", [0, 5, 511, 512, 700])
def test_a_crowded_floor_gives_its_first_entries(above: int, device: torch.device) -> None:
    """More groups reach the floor than can be listed: its entries are found in order of the row."""
    inputs = build(TopKCase(lengths=(40_000,), pattern="all_equal"), device)
    place = torch.randperm(40_000, generator=torch.Generator().manual_seed(above))[:above]
    inputs.scores[0, place.to(device)] = 2.0
    assert_topk(*gathered(V4, inputs), inputs)


@pytest.mark.field_case("K28", "K27")
@EITHER
def test_ten_launches_agree_bitwise(config: TopKConfig, device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(1500, 5000), pattern="few_values", topk=32), device)
    first = gathered(config, inputs)
    for _ in range(9):
        assert_bitwise_equal(gathered(config, inputs), first, "a repeated launch")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"room": 32}, "room 32 must be at least 1.25 max_k"),
        ({"room": 63}, "'room': 63"),
        ({"direct": 96}, "'direct': 96"),
        ({"chunk": 0}, "'chunk': 0"),
        ({"programs": 0}, "programs is 0"),
        ({"direct": 2048}, "more than the 1024 entries that one program holds"),
        ({"runs": 3}, "'runs': 3"),
    ],
)
def test_sizes_that_would_write_out_of_bounds_or_miss_a_score_are_refused(change: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(SMALL, **change)
