"""Clocks stand beside every figure: their median, least, drift and number of readings, and what differs is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_gpu import reading
from validity_kit import PLAN, healthy

from perfgate import point_results, validity
from perfgate.gpu_sampling import summarise
from perfgate.sampler import Taken
from perfgate.validity import Problem, ProblemKind
from perfgate.workload import Sample


def clocked(mhz: int = 1755, **changes: object) -> Sample:
    return replace(
        healthy(), **{"clocks_mhz": (mhz,), "lowest_clocks_mhz": (mhz - 15,), "clock_readings": 20, **changes}
    )


def clocks(problems: list[Problem]) -> list[str]:
    return [p.message for p in problems if p.kind is ProblemKind.CLOCKS]


@pytest.mark.field_case("N10")
def test_a_clock_that_falls_over_a_burst_is_told_by_its_first_and_last_readings() -> None:
    falling = [reading(at, mhz=1965 - round(385 * at / 99)) for at in range(100)]
    (window,) = summarise(falling)
    assert window.drift == pytest.approx(-0.178, abs=0.005)
    (steady,) = summarise([reading(at) for at in range(100)])
    assert steady.drift == 0.0


def test_a_handful_of_readings_has_no_drift() -> None:
    (window,) = summarise([reading(at, mhz=1965 - 100 * at) for at in range(5)])
    assert window.drift is None


@pytest.mark.field_case("N10")
def test_a_drift_within_a_sample_is_a_warning_and_the_sample_still_counts() -> None:
    (found,) = [p for p in validity.check(clocked(clock_drift=-0.15), None, PLAN) if p.kind is ProblemKind.CLOCKS]
    assert "-15%" in found.message
    assert not found.invalid
    assert clocks(validity.check(clocked(clock_drift=-0.01), None, PLAN)) == []


@pytest.mark.field_case("N11")
def test_median_least_clock_and_throttle_reasons_stand_with_each_sample() -> None:
    sample = clocked(throttle_reasons=("GPU 0: power cap (40%)",), clock_drift=-0.02)
    (row,) = point_results.sample_rows([Taken(PLAN, sample)])
    assert (row.clock_mhz, row.clock_low_mhz, row.clock_readings, row.clock_drift) == (1755, 1740, 20, -0.02)
    assert row.throttle == ["GPU 0: power cap (40%)"]


@pytest.mark.field_case("N11")
def test_samples_of_one_point_at_other_clocks_are_told() -> None:
    assert "1600 to 1755 MHz" in clocks(validity.compare([clocked(), clocked(1600)]))[0]
    assert clocks(validity.compare([clocked(), clocked(1740)])) == []


@pytest.mark.field_case("N11")
def test_a_clock_known_from_too_few_readings_is_told() -> None:
    few = [clocked(clock_readings=9), clocked(clock_readings=20)]
    assert "29 readings" in clocks(validity.compare(few))[0]
    assert clocks(validity.compare([clocked(clock_readings=10)] * 3)) == []


@pytest.mark.field_case("N11")
def test_the_sides_of_an_a_b_at_clocks_more_than_a_percent_apart_are_told() -> None:
    assert "1755 MHz, the new at 1735 MHz" in clocks(validity.compare_arms([clocked()] * 3, [clocked(1735)] * 3))[0]
    assert clocks(validity.compare_arms([clocked()] * 3, [clocked(1740)] * 3)) == []


def test_samples_without_a_gpu_have_no_clocks_to_speak_of() -> None:
    assert clocks(validity.compare([healthy(), healthy()])) == []
    assert clocks(validity.compare_arms([healthy()], [healthy()])) == []
