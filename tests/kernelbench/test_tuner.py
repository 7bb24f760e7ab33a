"""The tuner's edge: rows go through the tables' own interface, and what may not stand in a table is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dsv4_kernels.card import SM90, SM120

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import tune_kernels as tuner

from perfgate.kernelbench.shapes import HEADS
from perfgate.kernelbench.tuning import varied

KERNELS = list(tuner.TUNABLE)


@pytest.mark.parametrize("name", KERNELS)
def test_a_row_put_into_the_table_is_what_a_launch_chooses_and_is_taken_out_again(name: str) -> None:
    kernel = tuner.TUNABLE[name]
    before = dict(kernel.table.TABLE)
    row = before[SM90.name][-1]
    with tuner.table_of(kernel, SM90, (row,)):
        for table in {SM90.name, "interpreter"} & before.keys():
            assert all(kernel.table.choose(table, *kernel.ask(shape)) is row for shape in kernel.shapes)
    assert before == kernel.table.TABLE


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("card", [SM90, SM120], ids=lambda card: card.name)
def test_every_shape_to_tune_on_has_a_row(name: str, card: Any) -> None:
    kernel = tuner.TUNABLE[name]
    found = tuner.buckets(kernel, card, kernel.shapes)
    assert sum(map(len, found.values())) == len(kernel.shapes)


ROWS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 64, 65, 128, 256, 512, 513, 1024, 4096)
TOKENS = (*ROWS, 4097, 8192, 16_384, 16_385, 32_768, 10**6)
CALLS = {
    "decode": [(rows, heads) for rows in ROWS for heads in (1, 16, 17, 32, 33, 64, 65, 128)],
    "indexer": [(rows,) for rows in ROWS],
    "topk": [(topk,) for topk in range(1, 2049)],
    "hc": [(tokens,) for tokens in TOKENS],
}
"""Arguments on both sides of every limit that a table may have, of calls that a server makes."""


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("card", [SM90, SM120], ids=lambda card: card.name)
def test_every_row_that_a_call_can_choose_is_tuned_on_a_shape_that_chooses_it(name: str, card: Any) -> None:
    kernel = tuner.TUNABLE[name]
    chosen = {kernel.table.choose(card.name, *call) for call in CALLS[name]}
    assert chosen <= set(kernel.table.TABLE[card.name])
    assert chosen == set(tuner.buckets(kernel, card, kernel.shapes))


@pytest.mark.parametrize("card", [SM90, SM120], ids=lambda card: card.name)
def test_no_row_of_a_table_is_out_of_reach(card: Any) -> None:
    for name, kernel in tuner.TUNABLE.items():
        chosen = {kernel.table.choose(card.name, *call) for call in CALLS[name]}
        if name == "decode":
            # The interpreter stands in for a card, and has no way to run Gluon.
            chosen |= {kernel.table.choose(card.name, *call, interpreted=True) for call in CALLS[name]}
        assert chosen == set(kernel.table.TABLE[card.name]), name


def test_every_number_of_heads_is_tuned_on() -> None:
    assert {shape.heads for shape in tuner.TUNABLE["decode"].shapes} == set(HEADS)


GOOD = {"error": "", "shared": 1000, "mma": 4, "wgmma": 0, "stack": 0, "fp64": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"error": "too deep\nmore"}, "does not compile"),
        ({"shared": 101_377}, "101377 bytes of shared memory"),
        ({"mma": 0}, "no tensor cores"),
        ({"stack": 97}, "97 bytes spilled"),
        ({"fp64": 1}, "fp64"),
    ],
)
def test_a_configuration_that_may_not_stand_in_a_table_is_refused(change: dict[str, Any], words: str) -> None:
    case = SimpleNamespace(name="decode[x]", tensor_cores=True, max_spill_bytes=96)
    why = tuner.refusal(case, SimpleNamespace(**GOOD | change), SM120)
    assert (words in why) if words else not why


def test_a_candidate_is_compiled_for_every_card_and_timed_with_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tuner.TUNABLE["hc"]
    row = kernel.table.TABLE[SM90.name][0]
    other = varied(row, "splits", 32)
    asked = []

    def compiled(which: Any, card: Any) -> list[Any]:
        asked.append(card.name)
        return [(SimpleNamespace(name="hc", tensor_cores=True, max_spill_bytes=0), SimpleNamespace(**GOOD))]

    monkeypatch.setattr(tuner, "compiled", compiled)
    shapes = list(kernel.shapes[:1])
    found = tuner.attempt(kernel, other, shapes, SM90, [SM120], lambda s: kernel.table.choose("sm_90", s.batch).splits)
    assert asked == ["sm_90", "sm_120"]
    assert found.times_us == {shapes[0].key: 32}

    def wrong(shape: Any) -> float:
        raise AssertionError("a mix is off")

    assert "a mix is off" in tuner.attempt(kernel, other, shapes, SM90, [], wrong).refused


def test_without_a_gpu_nothing_is_tuned_and_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert tuner.main(["tune", "hc", "--axis", "splits=32,64"]) == 1
    assert "nothing can be tuned here" in capsys.readouterr().err
