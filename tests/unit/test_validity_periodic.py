"""One prompt a minute from somewhere: found in the whole log, whether or not a sample was hit."""

from __future__ import annotations

import pytest
from validity_kit import ALONE, START, access_line, log_of, prefill_line, run_lines

from perfgate.serverlog import ServerLog
from perfgate.validity import ProblemKind, Span, periodic_strays


def _log(extra: list[tuple[float, str]], runs: tuple[float, ...]) -> tuple[ServerLog, list[Span]]:
    timed = list(extra)
    for at in runs:
        timed += [(at + index / 1000, line) for index, line in enumerate(run_lines(ALONE, at=at))]
    spans = [Span(START + at, START + at + 14) for at in runs]
    return log_of(*(line for _, line in sorted(timed, key=lambda pair: pair[0]))), spans


def _every(period: float, count: int, first: float = 5.0, tokens: int = 37) -> list[tuple[float, str]]:
    return [(first + i * period, prefill_line(first + i * period, 1, tokens)) for i in range(count)]


@pytest.mark.field_case("X04")
@pytest.mark.parametrize("period", [7.0, 60.0, 61.3, 300.0])
def test_beat_that_no_sample_met_is_found_and_is_a_warning(period: float) -> None:
    log, spans = _log(_every(period, 6), ())
    (problem,) = periodic_strays(log, spans)
    assert problem.kind is ProblemKind.PERIODIC_STRAY
    assert not problem.invalid
    assert f"every {round(period)} s" in problem.message
    assert len(problem.evidence) == 6


@pytest.mark.field_case("X04")
def test_beat_that_falls_into_a_sample_makes_it_invalid_even_where_the_sample_hides_it() -> None:
    log, spans = _log([line for line in _every(60.0, 8) if line[0] != 185.0], runs=(20.0, 80.0, 178.0))
    (problem,) = periodic_strays(log, spans)
    assert problem.invalid
    assert "1 of 3 samples" in problem.message


def test_beat_inside_samples_is_found_by_its_length() -> None:
    log, spans = _log(_every(60.0, 5, first=7.0), runs=(0.0, 60.0, 120.0, 180.0, 240.0))
    (problem,) = periodic_strays(log, spans, input_lens=[ALONE.input_len])
    assert problem.invalid
    assert "every 60 s" in problem.message


def test_beat_is_found_where_the_stranger_is_prefilled_together_with_one_of_ours() -> None:
    stranger = [(7.0 + 60 * i, prefill_line(7.0 + 60 * i, 2, 20 * ALONE.input_len)) for i in range(5)]
    log, spans = _log(stranger, runs=(0.0, 60.0, 120.0, 180.0, 240.0))
    (problem,) = periodic_strays(log, spans, input_lens=[ALONE.input_len])
    assert "every 60 s" in problem.message


def test_own_samples_at_even_intervals_are_no_strangers() -> None:
    log, spans = _log([], runs=(0.0, 60.0, 120.0, 180.0, 240.0))
    assert periodic_strays(log, spans, input_lens=[ALONE.input_len]) == []


def test_irregular_strangers_have_no_beat() -> None:
    times = (5, 31, 120, 129, 222, 411, 440)
    log, spans = _log([(t, prefill_line(t, 1, 37)) for t in times], runs=())
    assert periodic_strays(log, spans) == []


@pytest.mark.field_case("X02")
def test_health_probe_by_the_clock_is_no_stranger() -> None:
    probes = []
    for i in range(8):
        at = 5.0 + 10 * i
        probes += [(at, prefill_line(at, 1, 1)), (at + 1, access_line(at + 1, "GET /health"))]
    log, spans = _log(probes, runs=(100.0,))
    assert periodic_strays(log, spans) == []


def test_beat_that_misses_a_tick_and_drifts_a_little_is_still_found() -> None:
    lines = [(5 + i * 60.2, prefill_line(5 + i * 60.2, 1, 37)) for i in range(12) if i != 4]
    log, spans = _log(lines, runs=())
    (problem,) = periodic_strays(log, spans)
    assert "every 60 s" in problem.message
