"""What kind of cost a step gained, from how the difference grows with the batch."""

import numpy as np
import pytest

from perfgate.scaling import ScalingError, explain_change

STEPS = {1: 7.0, 8: 12.0, 24: 24.0}
"""Step times in ms: 6.2 + 0.73*N."""


def changed(by, error=0.02, seed=None):
    """Points whose step time changed by ``by(n, old)`` ms, known to a share ``error`` of the step."""
    rng = np.random.default_rng(seed)
    wobble = (lambda: 0.0) if seed is None else (lambda: rng.normal(0, error))
    return [(n, old, by(n, old) + wobble() * old, error * old) for n, old in STEPS.items()]


@pytest.mark.parametrize("seed", range(10))
def test_a_share_of_each_step_is_no_cost_per_request(seed):
    told = explain_change(changed(lambda n, old: 0.10 * old, seed=seed, error=0.01))
    assert told.per_request is False
    share = next(e for e in told.explanations if e.kind == "share")
    assert share.low < 0.10 < share.high or abs(share.amount - 0.10) < 0.02


@pytest.mark.parametrize("seed", range(10))
def test_a_cost_per_request_is_no_cost_of_the_step(seed):
    told = explain_change(changed(lambda n, old: 0.25 * n, seed=seed))
    assert told.per_request is True
    assert told.best.amount == pytest.approx(0.25, abs=0.06)
    assert "cost per request" in str(told)


def test_a_fixed_time_a_step_is_told_from_a_share_of_it():
    told = explain_change(changed(lambda n, old: 0.8, error=0.01))
    assert told.best.kind == "step"
    assert told.per_request is False
    assert "ms a step" in str(told)


def test_no_change_is_not_explained():
    told = explain_change(changed(lambda n, old: 0.0))
    assert not told.changed
    assert told.per_request is None
    assert "no change" in str(told)


def test_with_much_noise_it_says_that_it_cannot_tell():
    told = explain_change(changed(lambda n, old: 0.10 * old, error=0.06))
    assert told.per_request is None
    assert "nearly as well" in str(told) or not told.changed


def test_a_change_at_one_point_alone_is_none_of_the_three():
    told = explain_change([(1, 7.0, 0.0, 0.05), (8, 12.0, 5.0, 0.05), (24, 24.0, 0.0, 0.05)])
    assert told.per_request is None


def test_a_change_that_no_explanation_fits_is_said_to_be_one():
    told = explain_change([(1, 7.0, 1.0, 0.05), (8, 12.0, 0.9, 0.05), (24, 24.0, 2.4, 0.05)])
    assert told.changed
    assert told.per_request is None
    assert "neither evenly nor with the batch" in str(told)


def test_errors_that_are_too_small_for_the_residuals_widen_the_interval():
    fine = explain_change(changed(lambda n, old: 0.10 * old, error=0.001)).best
    rough = explain_change([(1, 7.0, 0.9, 0.007), (8, 12.0, 1.0, 0.012), (24, 24.0, 2.6, 0.024)]).best
    assert rough.high - rough.low > 3 * (fine.high - fine.low)


@pytest.mark.parametrize(
    "points", [[], [(1, 7, 0.1, 0.1)], [(1, 7, 0.1, 0.1), (1, 7, 0.2, 0.1)], [(1, 0, 0, 0), (2, 1, 0, 0)]]
)
def test_what_is_no_comparison_is_refused(points):
    with pytest.raises(ScalingError):
        explain_change(points)
