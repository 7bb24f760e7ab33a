"""Histories: change points, drift, what may be recorded, what a new fingerprint orphans."""

import dataclasses

import numpy as np
import pytest

from perfgate.baseline import Baseline, MetricBaseline, load, record
from perfgate.history import change_points, orphans, proposal, slow_drift
from perfgate.workload import Sample


def runs(count, noise=0.005, seed=0, level=100.0):
    return level * np.exp(np.random.default_rng(seed).normal(0, noise, count))


def base(median=100.0, metric="throughput"):
    return Baseline(16, {metric: MetricBaseline((median,) * 5, (0,) * 5, median, 0.0)})


def test_a_step_below_each_runs_threshold_is_found_where_it_happened():
    series = runs(40)
    series[20:] *= 0.985
    found = change_points(series)
    assert len(found) == 1
    assert abs(found[0].index - 20) <= 2
    assert found[0].change == pytest.approx(-0.015, abs=0.005)


def test_a_quiet_history_has_no_change_points():
    # A chance of about half a percent each by simulation: at most 2 of 60 by chance is far out already.
    assert sum(bool(change_points(runs(30, seed=seed))) for seed in range(60)) <= 2


@pytest.mark.field_case("N05")
def test_one_fast_outlier_makes_no_change_point_and_is_never_adopted():
    series = runs(30)
    series[15] *= 3
    assert change_points(series) == []
    assert proposal([100, 100, 300, 100, 100], base(), "throughput") is None
    assert proposal([100, 100, 30, 100, 100], base(metric="step_time"), "step_time") is None


@pytest.mark.field_case("N09")
def test_two_modes_are_not_a_series_of_change_points():
    rng = np.random.default_rng(4)
    found = [change_points(rng.choice([22.5, 25.5], 30) + rng.normal(0, 0.05, 30)) for _ in range(30)]
    assert sum(map(bool, found)) <= 3


def test_a_lasting_gain_is_proposed_with_its_level():
    assert proposal([100, 103, 104, 103, 104], base(), "throughput") == 103
    assert proposal([100, 97, 96, 97, 96], base(metric="step_time"), "step_time") == 97
    assert proposal([100, 97, 96, 97, 96], base(), "throughput") is None


def test_slow_drift_below_each_runs_threshold_is_found():
    series = runs(30) * (1 - 0.03 * np.arange(30) / 30)
    drift = slow_drift(series)
    assert drift is not None
    assert drift.total == pytest.approx(-0.03, abs=0.01)
    assert slow_drift(runs(30)) is None


@pytest.mark.parametrize("series", [[], [1.0], [1.0] * 7, [5.0] * 50])
def test_short_or_constant_histories_say_nothing(series):
    assert change_points(series) == []
    assert slow_drift(series) is None


def test_a_new_driver_orphans_its_baselines_and_says_how_to_record_them_anew(tmp_path):
    path = tmp_path / "h200.json"
    sample = Sample(1, 5, 4.0, 100, 100, 100.0, median_tpot_ms=10.0)
    record(
        path,
        recipe="r",
        hardware="h200",
        points={1: [sample], 16: [sample]},
        fingerprint={"driver": "570", "gpu": {"model": "H200"}},
        recorded_at="2026-11-29",
        commit="abc123",
        reason="first",
    )
    file = load(path)
    assert orphans(file, {"driver": "570", "gpu": {"model": "H200"}}) == []
    found = orphans(file, {"driver": "580", "gpu": {"model": "H200"}})
    assert [o.concurrency for o in found] == [1, 16]
    assert found[0].differences == ("driver: '570' -> '580'",)
    assert "--against-commit abc123" in found[0].advice
    assert "--record" in found[0].advice
    point = file.stored.points["1"]
    point = point.model_copy(update={"provenance": point.provenance.model_copy(update={"commit": "abc123-dirty"})})
    other = dataclasses.replace(file, stored=file.stored.model_copy(update={"points": {"1": point}}))
    (dirty,) = orphans(other, {"driver": "580"})
    assert "(--against-commit abc123)" in dirty.advice
    assert dirty.advice.endswith("changes that are in no commit, which that one lacks")
