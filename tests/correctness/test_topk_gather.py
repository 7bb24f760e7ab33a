"""The gathering top-k is exact as the narrowing one is; no card's table asks for it before a card has timed it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from dsv4_kernels.topk import _launch
from dsv4_kernels.topk_table import MOST_GROUPS, TABLE, TopKConfig
from hypothesis import given
from kit.arguments import TopKInputs
from kit.cache import poisoned_memory
from kit.compare import assert_bitwise_equal
from kit.strategies_topk import PATTERNS, TopKCase, build, topk_cases
from kit.topk import UNWRITTEN, assert_topk

ROOT = Path(__file__).parents[2]
LARGE = replace(TABLE["sm_90"][0], room=1024, floor_warps=16, select_warps=32, wide=True)
"""As the sweep on a card has it."""
SMALL = TopKConfig(
    max_k=32,
    direct=128,
    splits=4,
    groups=32,
    tie_room=32,
    floor_warps=4,
    narrow_warps=4,
    select_warps=4,
    room=64,
    chunk=64,
)
"""The same passes on short rows: 128 entries directly, 1,024 without a list."""


def gathered(config: TopKConfig, inputs: TopKInputs) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.full((inputs.scores.shape[0], inputs.topk), UNWRITTEN, dtype=torch.int32, device=inputs.scores.device)
    raw = out.clone()
    with poisoned_memory():
        _launch(config, *inputs.arguments(), out, raw)
    return out, raw


@pytest.mark.field_case("K06", "K29")
@pytest.mark.parametrize("wide", [False, True])
@given(case=topk_cases(most_rows=4, most_tokens=6000, most_k=32))
def test_selects_exactly_what_the_oracle_does(wide: bool, case: TopKCase, device: torch.device) -> None:
    inputs = build(case, device)
    assert_topk(*gathered(replace(SMALL, wide=wide), inputs), inputs)


@pytest.mark.parametrize("topk", [1, 20, 32])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_of_every_way_side_by_side(pattern: str, topk: int, device: torch.device) -> None:
    lengths = (0, 1, topk, topk + 1, 128, 129, 1023, 1024, 1025, 1500, 2048, 4097, 5000)
    inputs = build(TopKCase(lengths=lengths, pattern=pattern, topk=topk, width=5000), device)
    assert_topk(*gathered(SMALL, inputs), inputs)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_as_long_as_a_context(pattern: str, device: torch.device) -> None:
    lengths = (600, 4097, 16_384, 16_385, 65_536)
    inputs = build(TopKCase(lengths=lengths, pattern=pattern, width=65_536), device)
    assert_topk(*gathered(LARGE, inputs), inputs)


def test_the_longest_rows_that_are_listed_and_longer_ones(device: torch.device) -> None:
    for length in (16 * MOST_GROUPS, 16 * MOST_GROUPS + 1):
        inputs = build(TopKCase(lengths=(length, 20_000), pattern="few_values", width=length), device)
        assert_topk(*gathered(LARGE, inputs), inputs)


def test_winners_in_one_place_share_no_group(device: torch.device) -> None:
    """A row of 65,536 whose 512 best lie side by side: 128 groups would hold them if groups were neighbours."""
    inputs = build(TopKCase(lengths=(65_536,)), device)
    inputs.scores[0, 30_000:30_512] += 100
    assert_topk(*gathered(LARGE, inputs), inputs)


@pytest.mark.field_case("K02", "K33")
@pytest.mark.parametrize("above", [0, 5, 511, 512, 700])
def test_a_crowded_floor_gives_its_first_entries(above: int, device: torch.device) -> None:
    """More groups reach the floor than can be listed: its entries are found in order of the row."""
    inputs = build(TopKCase(lengths=(40_000,), pattern="all_equal"), device)
    place = torch.randperm(40_000, generator=torch.Generator().manual_seed(above))[:above]
    inputs.scores[0, place.to(device)] = 2.0
    assert_topk(*gathered(LARGE, inputs), inputs)


@pytest.mark.field_case("K28", "K27")
def test_ten_launches_agree_bitwise(device: torch.device) -> None:
    inputs = build(TopKCase(lengths=(1500, 5000), pattern="few_values", topk=32), device)
    first = gathered(SMALL, inputs)
    for _ in range(9):
        assert_bitwise_equal(gathered(SMALL, inputs), first, "a repeated launch")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"room": 32}, "room 32 must be at least 1.25 max_k"),
        ({"room": 63}, "'room': 63"),
        ({"direct": 96}, "'direct': 96"),
        ({"chunk": 0}, "'chunk': 0"),
        ({"groups": 4}, "fewer maxima than max_k 32"),
        ({"splits": 256, "direct": 128}, "no room for candidates"),
        ({"step": 16}, "step 16 must hold 32 groups"),
        ({"step": 65_536}, "16 bits"),
    ],
)
def test_sizes_that_would_write_out_of_bounds_or_miss_a_score_are_refused(change: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(SMALL, **change)


# In a process of its own: this one's Triton interprets.
COMPILE = """
import dataclasses, json, sys
sys.path[:0] = sys.argv[1:]
from dsv4_kernels import topk, topk_table
from dsv4_kernels.card import CARDS
from kit.compiled import inspect
from test_topk_gather import LARGE
found = []
for card in CARDS:
    topk_table.TABLE[card.name] = (LARGE,)
    for case in topk.compile_cases(card):
        if "[4096]" in case.name or "held" in case.name:
            found.append(dataclasses.asdict(inspect(case, card)) | {"most": case.max_spill_bytes})
print(json.dumps(found))
"""


def test_it_compiles_for_both_cards_and_spills_next_to_nothing() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    reports = json.loads(done.stdout)
    assert len(reports) == 2 * 5
    for report in reports:
        assert not report["error"]
        assert report["stack"] <= report["most"]
        assert report["shared"] <= 65_536
        assert not report["fp64"]
