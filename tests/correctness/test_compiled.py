"""Every configuration that a launcher can choose, compiled for both cards on whatever machine runs the tests."""

from __future__ import annotations

import re

import pytest
from dsv4_kernels.card import CARDS
from kit import compiled

CASES = [
    # All of one group on one worker: it compiles them in one go.
    pytest.param(
        module, card, case, id=f"{card.name}-{case.name}", marks=pytest.mark.xdist_group(f"{module}-{card.name}")
    )
    for module in compiled.MODULES
    for card in CARDS
    for case in compiled.cases(module, card)
]


@pytest.mark.field_case("K30")
@pytest.mark.parametrize(("module", "card", "case"), CASES)
def test_configuration_fits_the_card_and_keeps_its_promises(module, card, case):
    report = compiled.reports(module, card.name)[case.name]
    assert not report.error, f"{case.name} does not compile for {card.name}: {report.error}"
    # What a block may opt in to; a launch that asks for more is refused.
    assert report.shared <= card.shared_bytes, f"{report.shared} bytes of shared memory on {card.name}"
    assert not report.fp64, f"{report.fp64} fp64 instructions: 1/64 of fp32's rate on sm_120"
    if case.tensor_cores:
        assert report.mma + report.wgmma > 0, "no tensor-core instruction, where the configuration promises them"
    # Stack is where registers spill to. A few bytes cost little beside the loads of a step; the case says how many.
    assert report.stack <= case.max_spill_bytes, f"{report.stack} bytes a thread spilled ({report.registers} registers)"


# As 32 bits these reach no further than the largest of their kind does: 31 rows of weights, a batch's lengths, the entries of
# one query's row of indices, the dimensions of one head.
SMALL = re.compile(r"fn_stride|(extra_)?length_stride|(extra_)?index_stride_k|q_stride_d")


@pytest.mark.parametrize(("module", "card", "case"), CASES)
def test_rows_may_lie_more_than_two_billion_entries_from_the_first(module, card, case):
    report = compiled.reports(module, card.name)[case.name]
    wrong = [name for name in report.narrow if not SMALL.fullmatch(name)]
    assert not wrong, f"{case.name} multiplies {wrong} as 32 bits: that overflows"


@pytest.mark.parametrize("module", compiled.MODULES)
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_kernel_announces_configurations_for_every_card(module, card):
    names = [case.name for case in compiled.cases(module, card)]
    assert names, f"{module} has nothing for {card.name}"
    assert len(set(names)) == len(names), f"two configurations of {module} share a name"
