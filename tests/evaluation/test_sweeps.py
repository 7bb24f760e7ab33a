"""How often noise alone breaks a law of the decode step: a small share in any run, all of it with `-m evaluation`."""

from __future__ import annotations

import time
from datetime import date

import pytest
from full import PAGE_PATH, SCALE, scaled, unlike, upper_end
from full import seeds as fresh_seeds
from sweeps import DENSE, FLAT, FLAT_THREE, GAPS, LINE, SEVEN, TINY, moe, wrong

from perfgate import marked

RUNS = 10_000
PROMISED = 1 / 1000

CELLS = {
    **{f"the same at 7 points, {k} samples": (DENSE, FLAT, 0.02, k, 1.0) for k in (2, 3, 5, 10)},
    "the same at 7 points, 3 samples, noise 5 %": (DENSE, FLAT, 0.05, 3, 1.0),
    "the same at 7 points, 5 samples, C=1 ten times as noisy": (DENSE, FLAT, 0.01, 5, 10.0),
    "the same at 3 points, 3 samples": (DENSE, FLAT_THREE, 0.02, 3, 1.0),
    "the same at 3 points, 3 samples, C=1 ten times as noisy": (DENSE, FLAT_THREE, 0.01, 3, 10.0),
    "1.65 + 0.03*N at 7 points, 2 samples, noise 5 %": (DENSE, LINE, 0.05, 2, 1.0),
    "1.65 + 0.03*N at 7 points, 5 samples": (DENSE, LINE, 0.02, 5, 1.0),
    "experts, at the points of v4mini-patched-gaps, 5 samples": (GAPS, moe(1, 16, 17, 33, 64), 0.005, 5, 1.0),
    "experts, at 7 points, 3 samples": (GAPS, moe(*SEVEN), 0.02, 3, 1.0),
}
"""Honest sweeps by name: recipe, step times, noise, samples a point, and by how much C=1 is noisier."""


@pytest.mark.parametrize(
    ("noise", "samples", "uneven"), [(0.02, 3, 1.0), (0.02, 2, 1.0), (0.05, 3, 1.0), (0.02, 3, 5.0)]
)
def test_small_share_equal_step_times_break_no_law(noise, samples, uneven):
    # 500 runs at one in 1,000 have 3 or more with 1.4 %; the seed is fixed.
    assert wrong(DENSE, FLAT, noise, samples, 500, uneven)["any"] <= 2


@pytest.mark.parametrize(("noise", "samples"), [(0.05, 2), (0.05, 3), (0.02, 5)])
def test_small_share_a_line_breaks_no_law(noise, samples):
    assert wrong(TINY, LINE, noise, samples, 500)["any"] <= 2


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_small_share_a_mixture_of_experts_breaks_no_law(noise):
    assert wrong(GAPS, moe(1, 16, 17, 33, 64), noise, 5, 500)["any"] <= 2


def test_a_step_time_that_falls_by_a_third_is_told_from_three_samples_of_two_percent():
    assert wrong(DENSE, {1: 10.0, 16: 10.0, 64: 6.7}, 0.02, 3, 50)["law: step time does not fall"] >= 40


@pytest.mark.evaluation
@pytest.mark.timeout(3600)
def test_full_evaluation_of_the_laws_holds_its_promise_and_writes_its_part():
    began = time.monotonic()
    seeds = fresh_seeds()
    runs = scaled(RUNS)
    found = {
        name: wrong(*cell[:4], runs, cell[4], seed)
        for (name, cell), seed in zip(CELLS.items(), seeds.spawn(len(CELLS)), strict=True)
    }
    rows = [
        f"| {name} | {CELLS[name][2]:.1%} | {runs} | {n['any']} | {upper_end(n['any'], runs):.2%} | {said(n)} |"
        for name, n in found.items()
    ]
    made = PART.format(
        date=date.today().isoformat(),
        minutes=(time.monotonic() - began) / 60,
        seed=seeds.entropy,
        scale=SCALE,
        rows="\n".join(rows),
    )
    PAGE_PATH.write_text(marked.section(PAGE_PATH.read_text(), "laws", made))
    loud = [name for name, n in found.items() if unlike(n["any"], runs, PROMISED, "greater")]
    assert loud == []


def said(found: dict[str, int]) -> str:
    return ", ".join(f"{law.removeprefix('law: ')} {n}" for law, n in sorted(found.items()) if law != "any") or "-"


PART = """
## Laws of the decode step
Honest sweeps in which noise alone breaks a law. Promised: at most 1 in 1,000, all laws together. Step times that are the
same at every C are the worst case, since any less would fall. Measured on {date} by
`pytest tests/evaluation -m evaluation -k laws`; {minutes:.1f} minutes at {scale:g} of the full number of runs,
`EVALUATION_SEED={seed}`. Not covered: samples at two levels, of which a point may show one alone
(five samples do so one time in 16) and then look quiet.

| step times | noise | sweeps | a law broken | at most (95 %) | which |
|---|--:|--:|--:|--:|---|
{rows}
"""
