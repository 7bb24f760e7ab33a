"""Little's law over a run's points is held to what bounds throughput: the mean time per output token."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import physics, recipe
from perfgate.result import Outcome, PointResult, SampleRow

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")

# Measured on 2026-11-30 at C=64, on a machine whose other load ended in the middle of the second sample: tokens/s, median
# TPOT and mean TPOT in ms. C/median is 1,273 tokens/s there, less than what was delivered; C/mean is 1,528.
SPED_UP = [
    (720.3363162976365, 81.93938562902575, 78.85586561804344),
    (1328.9442269851656, 50.29032866129837, 41.88859080030259),
    (1963.3451972288897, 27.12634683872062, 24.437917195866483),
]


def little(samples: list[tuple[float, float, float | None]]) -> Outcome:
    rows = [
        SampleRow(index=i, asked=640, throughput=rate, step_ms=median, mean_tpot_ms=mean, counted=True)
        for i, (rate, median, mean) in enumerate(samples)
    ]
    point = PointResult(concurrency=64, outcome=Outcome.PASS, why="", samples=rows)
    (check,) = (c for c in physics.check(RECIPE, [point]) if c.name == "law: Little C=64")
    return check.outcome


def test_a_machine_that_speeds_up_within_a_sample_breaks_no_law() -> None:
    assert little(SPED_UP) is Outcome.PASS


@pytest.mark.parametrize("known", [True, False])
def test_more_tokens_than_the_step_time_allows_are_refused(known: bool) -> None:
    impossible = [(1.1 * 64_000 / mean, mean, mean if known else None) for _, _, mean in SPED_UP]
    assert little(impossible) is Outcome.INVALID


def test_a_result_that_was_stored_without_means_is_held_to_the_median() -> None:
    assert little([(0.8 * 64_000 / median, median, None) for _, median, _ in SPED_UP]) is Outcome.PASS
