"""Consistency laws of a sweep."""

import numpy as np
import pytest

from perfgate.scaling import ScalingBounds, SweepPoint, consistency, fit

SWEEP = (1, 2, 4, 8, 16, 32, 64)


def sweep_of(step, noise=0.003, share=0.8, seed=0, sweep=SWEEP):
    rng = np.random.default_rng(seed)
    points = []
    for n in sweep:
        value = step(n) * (1 + noise * rng.standard_normal())
        points.append(SweepPoint(n, value, step(n) * noise, share * 1000 * n / value))
    return points


def broken(points, **options):
    law = fit([(p.concurrency, p.step_ms, p.sd_ms) for p in points])
    return [f for f in consistency(points, law, **options) if f.state == "broken"]


def test_a_real_sweep_breaks_no_law():
    for seed in range(300):
        assert broken(sweep_of(lambda n: 1.65 + 0.03 * n, seed=seed)) == []


@pytest.mark.parametrize("sd", [0.0, 0.05])
def test_the_published_table_is_refused(sd):
    # TPOT = 32 + 0.4*C to the last digit, and more tokens/s than C/TPOT.
    table = [SweepPoint(n, 32 + 0.4 * n, sd, 1.1 * 1000 * n / (32 + 0.4 * n)) for n in SWEEP]
    laws = {f.law for f in broken(table)}
    assert laws == {"little", "residual"}


def test_the_published_table_is_refused_for_its_residual_alone():
    table = [SweepPoint(n, 32 + 0.4 * n, 0.03) for n in SWEEP]
    found = broken(table)
    assert [f.law for f in found] == ["residual"]
    assert "closer to a line than any measurement" in found[0].why


def test_with_three_points_the_residual_is_not_testable_rather_than_kept():
    points = [SweepPoint(n, 32 + 0.4 * n, 0.03) for n in (1, 16, 64)]
    law = fit([(p.concurrency, p.step_ms, p.sd_ms) for p in points])
    assert [f.state for f in consistency(points, law) if f.law == "residual"] == ["not testable"]


@pytest.mark.parametrize(("throughput", "law"), [(1314, "standstill"), (797, "standstill"), (19000, "little")])
def test_throughput_and_step_time_have_to_agree(throughput, law):
    # C=64 with a TPOT of 3.55 ms allows 18,000 tok/s; 797 and 1,314 were reported by a server that stood still.
    found = [f for f in consistency([SweepPoint(64, 3.55, 0.02, throughput)]) if f.state == "broken"]
    assert [(f.law, f.concurrency) for f in found] == [(law, 64)]


def test_healthy_shares_of_little_are_kept():
    for share in (0.69, 0.86):
        found = consistency([SweepPoint(64, 3.55, 0.02, share * 18028)])
        assert {f.state for f in found} == {"kept"}


def test_step_time_falling_with_concurrency_is_a_fault_of_the_heavier_point():
    points = [SweepPoint(1, 3.0, 0.01), SweepPoint(16, 2.5, 0.01), SweepPoint(64, 4.0, 0.01)]
    found = [f for f in consistency(points) if f.state == "broken"]
    assert [(f.law, f.concurrency) for f in found] == [("falling", 16)]


def test_step_time_falling_within_noise_is_kept():
    points = [SweepPoint(1, 3.0, 0.2), SweepPoint(16, 2.5, 0.2)]
    assert [f.state for f in consistency(points)] == ["kept"]


def test_a_point_far_off_the_law_is_named():
    points = sweep_of(lambda n: 1.65 + 0.03 * n)
    points[4] = SweepPoint(16, 9.0, 0.03)
    assert ("residual", 16) in [(f.law, f.concurrency) for f in broken(points)]


@pytest.mark.parametrize(
    ("bounds", "fails"),
    [
        (ScalingBounds(b_max=0.5), True),
        (ScalingBounds(b_max=40), False),
        (ScalingBounds(a_max=10), True),
        (ScalingBounds(speedup_min=10), True),
        (ScalingBounds(speedup_min=2), False),
    ],
)
def test_a_recipe_bounds_the_law(bounds, fails):
    points = sweep_of(lambda n: 40 + 31 * n)
    assert bool([f for f in broken(points, bounds=bounds) if f.law == "bound"]) is fails


def test_a_bound_on_experts_that_were_not_fitted_is_not_called_kept():
    points = sweep_of(lambda n: 1 + n)
    law = fit([(p.concurrency, p.step_ms, p.sd_ms) for p in points])
    found = [f for f in consistency(points, law, ScalingBounds(e_max=1)) if f.law == "bound"]
    assert [f.state for f in found] == ["not testable"]


def test_without_a_law_its_bounds_are_not_testable_and_say_why():
    points = sweep_of(lambda n: 1 + n)
    found = consistency(points, "too few points", ScalingBounds(a_max=1, b_max=0.1, e_max=1))
    rests_on_it = [f for f in found if f.law in ("residual", "bound")]
    assert [f.state for f in rests_on_it] == ["not testable"] * 4
    assert all("too few points" in f.why for f in rests_on_it)


def speedup(points, **bounds):
    law = fit([(p.concurrency, p.step_ms, p.sd_ms) for p in points])
    (found,) = (f for f in consistency(points, law, ScalingBounds(**bounds)) if f.law == "bound")
    return found


@pytest.mark.parametrize("ran", [(1, 16), (2, 16, 64), (1,)])
def test_a_speed_up_is_held_to_the_ends_that_it_is_asked_of(ran):
    points = [SweepPoint(n, 2 + 0.01 * n, 0.002, 0.9 * 1000 * n / (2 + 0.01 * n)) for n in ran]
    (found,) = (f for f in consistency(points, "none", ScalingBounds(speedup_min=20, largest=64)) if f.law == "bound")
    assert found.state == "not testable"
    assert "from C=1 to C=64" in found.why


def test_a_speed_up_has_an_interval_and_is_too_small_only_with_all_of_it():
    def sweep(error):
        return [
            SweepPoint(n, 2 + 0.05 * n, error * (2 + 0.05 * n), rate, throughput_sd=error * rate, dof=4)
            for n, rate in ((1, 450.0), (64, 8550.0))
        ]

    assert speedup(sweep(0.001), speedup_min=20, largest=64).state == "broken"
    wide = speedup(sweep(0.02), speedup_min=20, largest=64)
    assert wide.state == "kept"
    assert "speed-up 19 (" in wide.why
    assert speedup(sweep(0.001), speedup_min=18, largest=64).state == "kept"
