"""Little's law over a run's points is held to what bounds throughput: the mean time per output token."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import physics, recipe
from perfgate.result import Outcome, PointResult, SampleRow
from perfgate.scaling import expert_coverage
from perfgate.yardstick import UNSTATED

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
EVERY = [recipe.Point(concurrency=c) for c in (1, 2, 4, 8, 16, 17, 32, 33, 64)]


def quiet(name: str) -> recipe.Recipe:
    """A recipe of the repository at any concurrency, with little spread between its starts."""
    known = recipe.load(Path(__file__).parents[2] / "recipes" / f"{name}.toml")
    bounds = known.bounds.model_copy(update={"between_start_rel_sd": 0.001})
    return known.model_copy(update={"bounds": bounds, "points": EVERY})


RECIPE_QUIET = quiet("cpu-tiny")

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


SHIPPED = recipe.load(Path(__file__).parents[2] / "recipes" / "v4mini-patched-gaps.toml")
MOE = quiet("v4mini-patched-gaps")
H200 = {1: 1.53, 16: 3.05, 64: 5.6}
"""Step times of six layers (docs/h200.md): through them a line has b = 0.064, and the law with experts 0.0057."""


def measured(steps: dict[int, float]) -> list[PointResult]:
    return [point(c, [(1, v * w) for w in (0.998, 0.999, 1.0, 1.001, 1.002)]) for c, v in steps.items()]


def judged(steps: dict[int, float], outcome: Outcome = Outcome.PASS, rate: float = 0.8) -> list[PointResult]:
    """Points that came to ``outcome``, at ``rate`` of the throughput that their step times allow."""
    found = []
    for one in measured(steps):
        rows = [r.model_copy(update={"throughput": (r.throughput or 0) * rate / 0.8}) for r in one.samples]
        found.append(one.model_copy(update={"outcome": outcome, "why": "judged", "samples": rows}))
    return found


def invalid(points: list[PointResult]) -> set[int]:
    return {p.concurrency for p in points if p.outcome is Outcome.INVALID}


def bounded(**bounds: float) -> recipe.Recipe:
    return MOE.model_copy(update={"bounds": MOE.bounds.model_copy(update=bounds)})


@pytest.mark.parametrize("points", [(1, 16), (1, 16, 64)])
def test_too_few_points_of_a_mixture_of_experts_break_no_bound_and_show_no_limit(points: tuple[int, ...]) -> None:
    tight = bounded(max_a_ms=1.45, max_b_ms=0.02, max_e_ms=0.03)
    steps = {c: H200[c] for c in points}
    checks = [c for c in physics.check(tight, measured(steps)) if c.name in ("law: bound", "law: residual")]
    assert [c.outcome for c in checks] == [Outcome.PASS] * 4
    assert all("4 or more concurrencies" in c.why for c in checks)
    drawn = physics.as_extra(tight, measured(steps))
    assert drawn is not None
    assert not {"a", "b", "asymptote", "residual_p"} & {*drawn}
    assert [p["n"] for p in drawn["points"]] == [*points]
    assert "4 or more concurrencies" in drawn["laws"][0]


def test_the_law_of_a_mixture_of_experts_is_fitted_with_its_experts() -> None:
    off = dict(zip((1, 2, 4, 8, 16, 32, 64), (1.001, 0.999, 1.0005, 0.9995, 1.001, 1.0, 0.9995), strict=True))
    steps = {n: (1.41 + 0.0191 * expert_coverage(n, (256, 6)) + 0.02 * n) * by for n, by in off.items()}
    drawn = physics.as_extra(MOE, measured(steps))
    assert drawn is not None
    assert drawn["experts"] == [256, 6]
    assert drawn["b"] == pytest.approx(0.02, rel=0.1)
    low, high = drawn["intervals"]["asymptote"]
    assert low < 50_000 < high
    assert any(c.outcome is Outcome.REGRESSION for c in physics.check(bounded(max_b_ms=0.01), measured(steps)))
    assert all(c.outcome is Outcome.PASS for c in physics.check(bounded(max_b_ms=0.03), measured(steps)))


@pytest.mark.parametrize(
    ("steps", "least"), [({1: 71.0, 16: 536.0, 64: 2024.0}, 28.6), ({1: 9.958, 16: 57.543, 64: 220.363}, 3.2)]
)
def test_a_cost_that_no_batch_amortises_is_told_where_experts_cannot_explain_it(
    steps: dict[int, float], least: float
) -> None:
    # The campaign's 40 + 31*N, and the torch indexer's on an H200, each from three points.
    drawn = physics.as_extra(MOE, measured(steps))
    assert drawn is not None
    assert drawn["laws"][0].startswith("a cost per request that no batch amortises")
    assert float(drawn["laws"][0].split()[8]) == pytest.approx(least, rel=0.05)
    assert "asymptote" not in drawn


def test_step_times_that_grow_as_the_experts_do_are_no_cost_per_request() -> None:
    for steps in (H200, {n: 0.2 * expert_coverage(n, (256, 6)) for n in (1, 16, 64)}):
        drawn = physics.as_extra(MOE, measured(steps))
        assert drawn is not None
        assert not any("amortises" in law for law in drawn["laws"])


def test_a_part_of_the_sweep_is_not_held_to_the_speed_up_of_all_of_it() -> None:
    steps = {1: 2.0, 16: 2.1}
    (check,) = (c for c in physics.check(bounded(min_speedup=20.0), measured(steps)) if c.name == "law: bound")
    assert check.outcome is Outcome.PASS
    assert "from C=1 to C=64, and there is C=1, C=16" in check.why
    slow = measured({1: 2.0, 16: 8.0, 17: 8.2, 33: 12.0, 64: 22.0})
    assert any("speed-up" in c.why for c in physics.check(bounded(min_speedup=20.0), slow) if not c.outcome.passes)


SWEEP = {1: 2.0, 2: 2.03, 4: 2.11, 8: 2.23, 16: 2.49, 32: 2.96, 64: 3.93}
"""1.97 + 0.03*N within half a percent."""


@pytest.mark.parametrize(
    ("steps", "rate", "faulty"),
    [
        (SWEEP, 0.8, set()),
        (SWEEP, 1.6, {*SWEEP}),
        (SWEEP, 0.05, {*SWEEP}),
        ({**SWEEP, 16: 1.5}, 0.8, {8, 16}),
        ({**SWEEP, 64: 9.0}, 0.8, {64}),
        ({n: 1.97 + 0.03 * n for n in SWEEP}, 0.8, {*SWEEP}),
    ],
)
def test_a_broken_law_makes_the_points_invalid_that_it_speaks_against(
    steps: dict[int, float], rate: float, faulty: set[int]
) -> None:
    found = physics.spoilt(RECIPE_QUIET, judged(steps, rate=rate))
    assert invalid(found) == faulty
    assert all(
        "law of the decode step (" in p.why and p.why.endswith("judged") for p in found if p.concurrency in faulty
    )
    assert all(p.advice for p in found if p.concurrency in faulty)
    assert all(p.why == "judged" for p in found if p.concurrency not in faulty)


def test_a_bound_of_the_recipe_speaks_against_no_points_figures() -> None:
    limited = RECIPE_QUIET.model_copy(update={"bounds": RECIPE_QUIET.bounds.model_copy(update={"max_b_ms": 0.01})})
    assert any(c.outcome is Outcome.REGRESSION for c in physics.check(limited, judged(SWEEP)))
    assert invalid(physics.spoilt(limited, judged(SWEEP))) == set()


def test_a_regression_stays_one_where_a_server_may_do_that_and_nothing_is_recorded() -> None:
    slow = judged({**SWEEP, 16: 1.5}, Outcome.REGRESSION)
    kept = physics.spoilt(RECIPE_QUIET, slow)
    assert invalid(kept) == set()
    assert {p.concurrency for p in kept if "falls by more than noise" in p.why} == {8, 16}
    assert invalid(physics.spoilt(RECIPE_QUIET, slow, recording=True)) == {8, 16}
    contradicted = judged(SWEEP, Outcome.REGRESSION, rate=1.6)
    assert invalid(physics.spoilt(RECIPE_QUIET, contradicted)) == {*SWEEP}


def test_where_no_spread_between_starts_is_stated_a_law_allows_for_what_an_alarm_does() -> None:
    (found,) = physics.sweep(SHIPPED, [point(1, [(1, 10.0), (1, 10.2)])])
    assert found.between == UNSTATED
