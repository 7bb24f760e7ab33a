"""No sample made of garbage counts, and nothing that can be read makes a check fail."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from test_serverlog_fuzz import mutated
from validity_kit import PLAN, deltas, healthy, log_of, run_lines

from perfgate.serverlog import ServerLogError, parse
from perfgate.validity import Span, check, compare, periodic_strays, steady_decode
from perfgate.workload import Plan, Sample, SampleError, read_sample

DATA = Path(__file__).parent.parent / "data"
LINES = [line for path in sorted(DATA.glob("*.jsonl")) for line in path.read_text().splitlines()]
ROWS = [{k: v for k, v in json.loads(line).items() if k != "server_info"} for line in LINES]
PLANS = [
    Plan(row["max_concurrency"], row["completed"], row["random_input_len"], row["random_output_len"]) for row in ROWS
]
# What a sample is judged by; a change of any of these beyond rounding must not go unseen.
CHECKED = (
    "completed",
    "total_output_tokens",
    "output_throughput",
    "duration",
    "request_throughput",
    "total_throughput",
    "max_concurrency",
    "random_input_len",
    "random_output_len",
    "mean_e2e_latency_ms",
    "concurrency",
)
DEADLINE = 5_000
"""Milliseconds for one example: a hang is found, a machine that is busy with other things is not."""
NUMBERS = st.integers(-(10**20), 10**20) | st.floats() | st.integers(-3, 300) | st.sampled_from([10**400, math.inf])
ANYTHING = NUMBERS | st.none() | st.text(max_size=5) | st.booleans() | st.lists(NUMBERS, max_size=3)
quick = settings(
    max_examples=60, deadline=DEADLINE, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def _read(line: str) -> Sample | None:
    try:
        return read_sample(line)
    except SampleError:
        return None


@quick
@given(st.text() | (ANYTHING | st.dictionaries(st.sampled_from(sorted(ROWS[0])), ANYTHING, min_size=6)).map(json.dumps))
def test_arbitrary_result_line_gives_a_sample_that_does_not_count_or_its_error(line: str) -> None:
    sample = _read(line)
    if sample is not None:
        assert any(p.invalid for p in check(sample, None, PLAN))


@quick
@given(st.integers(0, len(ROWS) - 1), st.sampled_from(sorted(ROWS[0])), ANYTHING)
def test_result_line_with_one_figure_replaced_reads_or_fails_and_is_judged(index: int, key: str, value: Any) -> None:
    sample = _read(json.dumps({**ROWS[index], key: value}))
    if sample is not None:
        check(sample, None, PLANS[index])


@quick
@given(st.sampled_from([1, 2, 5, 6, 7]), st.sampled_from(CHECKED), NUMBERS)
def test_replaced_figure_of_a_healthy_line_never_passes(index: int, key: str, value: float) -> None:
    before = ROWS[index][key]
    assume(isinstance(value, int) or not math.isnan(value))
    assume(not before * 0.95 <= value <= before * 1.05)
    sample = _read(json.dumps({**ROWS[index], key: value}))
    if sample is not None:
        assert any(p.invalid for p in check(sample, None, PLANS[index])), (key, before, value)


@quick
@given(st.integers(0, len(LINES) - 1), st.data())
def test_result_line_cut_or_spliced_reads_or_fails(index: int, data: st.DataObject) -> None:
    line = LINES[index]
    at = data.draw(st.integers(0, len(line)))
    to = data.draw(st.integers(at, min(len(line), at + 50)))
    sample = _read(line[:at] + data.draw(st.text(max_size=5)) + line[to:])
    if sample is not None:
        check(sample, None, PLANS[index])


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any sample that the type allows, however absurd."""
    figure = st.none() | st.floats() | st.floats(0, 1e4)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Sample):
        if field.type in ("float | None", "float"):
            values[field.name] = draw(figure if "None" in str(field.type) else st.floats())
        elif field.type in ("int | None", "int"):
            values[field.name] = draw(st.integers(0, 10**9) | (st.none() if "None" in str(field.type) else st.just(0)))
        elif field.name in ("ttfts_s", "input_lens", "output_lens"):
            values[field.name] = tuple(draw(st.lists(st.floats() | st.integers(-5, 5000), max_size=20)))
    return Sample(**values)


@quick
@given(samples(), mutated(), st.dictionaries(st.sampled_from(sorted(deltas())) | st.text(max_size=4), st.floats()))
def test_no_sample_log_or_counter_makes_a_check_fail(sample: Sample, text: str, counters: dict[str, float]) -> None:
    try:
        log = parse(text, allow_empty=True)
    except ServerLogError:
        return
    for plan in (PLAN, Plan(1, 1, 1, 1), Plan(64, 3, 256, 128, warmup_requests=0)):
        for problem in check(sample, log, plan, counters):
            assert str(problem)
    compare([sample, healthy()])
    steady_decode(log)
    periodic_strays(log, [Span(0, 1e9)], [256])


@quick
@given(mutated())
def test_log_of_another_run_never_makes_a_healthy_sample_count_with_more_load_than_planned(text: str) -> None:
    try:
        log = parse(text)
    except ServerLogError:
        return
    assume(any(d.running + d.queued > 1 for d in log.decode) and not any("DP" in (d.rank or "") for d in log.decode))
    alone = Plan(1, 5, 1024, 256)
    assert any(p.invalid for p in check(healthy(alone), log, alone))


@quick
@given(st.integers(0, 10**7))
def test_counter_that_differs_from_the_plan_never_passes(value: int) -> None:
    assume(value != PLAN.generated_with_warmup)
    log = log_of(*run_lines())
    assert any(p.invalid for p in check(healthy(), log, PLAN, deltas(generation_tokens_total=value)))
