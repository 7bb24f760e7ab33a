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


def point(concurrency: int, steps: list[tuple[int, float]]) -> PointResult:
    """A point of samples (server start, step time in ms)."""
    rows = [
        SampleRow(index=i, server_start=start, asked=5, throughput=800 * concurrency / v, step_ms=v, counted=True)
        for i, (start, v) in enumerate(steps)
    ]
    return PointResult(concurrency=concurrency, outcome=Outcome.PASS, why="", samples=rows)


def test_samples_of_one_start_count_as_one_where_there_are_several_starts() -> None:
    # Within each start all samples are alike; the starts lie 5 % apart, so that is what a mean is known to.
    (found,) = physics.sweep(RECIPE, [point(1, [(1, 10.0), (1, 10.01), (2, 10.5), (2, 10.51), (3, 9.5), (3, 9.51)])])
    assert found.dof == 2
    assert found.sd_ms == pytest.approx(0.5 / 3**0.5, rel=0.01)
    assert found.between == 0


def test_what_one_start_does_not_show_of_the_starts_is_the_recipes_figure() -> None:
    (found,) = physics.sweep(RECIPE, [point(1, [(1, 10.0), (1, 10.2)])])
    assert (found.step_ms, found.dof, found.between) == (pytest.approx(10.1), 1, 0.03)


def test_single_samples_break_no_law_since_nothing_tells_their_noise() -> None:
    checks = physics.check(RECIPE, [point(1, [(1, 10.0)]), point(16, [(1, 7.0)]), point(64, [(1, 9.0)])])
    assert [c.name for c in checks if not c.outcome.passes] == []
    assert any("single samples show no noise" in c.why for c in checks)
