"""Traps of the benchmark client: what it reports as success that is none (rows B)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from validity_kit import (
    ALONE,
    PLAN,
    access_line,
    decode_line,
    deltas,
    healthy,
    judged,
    kinds,
    log_of,
    prefill_line,
    run_lines,
    stamp,
)

from perfgate.validity import Limits, check, compare, steady_decode, tokens_per_chunk
from perfgate.validity import ProblemKind as Kind
from perfgate.workload import Plan, Sample, SampleError, read_sample


def test_healthy_sample_has_no_problem_at_all() -> None:
    log = log_of(*run_lines())
    assert check(healthy(), log, PLAN, deltas()) == []
    assert check(healthy(ALONE), log_of(*run_lines(ALONE)), ALONE, deltas(ALONE)) == []
    assert check(healthy(), None, PLAN) == []


@pytest.mark.field_case("B01")
def test_aborted_request_that_the_client_counts_in_full_is_caught_by_text_and_by_counter() -> None:
    assert judged(healthy(total_output_tokens_retokenized=PLAN.output_tokens // 4)) == {Kind.NO_TEXT}
    short = deltas(generation_tokens_total=PLAN.generated_with_warmup - 255.0)
    assert judged(counters=short) == {Kind.COUNTERS}


@pytest.mark.field_case("B02")
def test_error_inside_a_stream_that_answered_200_fails_the_sample() -> None:
    in_band = healthy(total_output_tokens_retokenized=0, median_ttft_ms=0.0, mean_ttft_ms=0.0, mean_itl_ms=0.0)
    assert {Kind.NO_TEXT, Kind.LATENCY} <= judged(in_band)
    log = log_of(*run_lines(), f"[{stamp(5)}] [http_server] Error: x")
    assert judged(log=log) == {Kind.SERVER_FAULT}


@pytest.mark.field_case("B03")
def test_half_the_requests_refused_is_not_a_faster_server() -> None:
    half = healthy(completed=40, total_output_tokens=40 * 256, output_throughput=healthy().output_throughput)
    assert Kind.INCOMPLETE in judged(half)
    refused = [access_line(3 + i / 10, client=f"127.0.0.1:{50000 + i}", status=503) for i in range(2)]
    assert Kind.REQUEST_ERROR in judged(log=log_of(*run_lines(), *refused))


@pytest.mark.field_case("B04")
def test_client_that_failed_is_no_sample_even_when_a_line_is_there() -> None:
    assert judged(healthy(exit_code=1)) == {Kind.CLIENT_EXIT}
    with pytest.raises(SampleError):
        read_sample("", exit_code=1)


@pytest.mark.field_case("B05")
@pytest.mark.parametrize("line", ["", '{"backend": "sglang", "duration": 3.1', "null", '"text"'])
def test_line_that_a_dying_client_left_unfinished_is_no_sample(line: str) -> None:
    with pytest.raises(SampleError):
        read_sample(line, exit_code=-9)


@pytest.mark.parametrize("count", ["Infinity", "1e400", "NaN", "-1", "1.5", "9" * 400, "9" * 5000])
def test_count_that_is_no_count_is_no_sample(count: str) -> None:
    figures = '"duration": 2.0, "total_input_tokens": 4, "total_output_tokens": 8, "output_throughput": 4.0'
    with pytest.raises(SampleError):
        read_sample(f'{{"completed": {count}, {figures}}}')


@pytest.mark.field_case("B06")
def test_first_decode_line_after_idle_time_is_left_out() -> None:
    speeds = (0.07, 112.51, 112.05, 0.2, 110.0, 111.0)
    times = (0, 1, 2, 40, 41, 42)
    log = log_of(*(decode_line(t, 1, throughput=s) for t, s in zip(times, speeds, strict=True)))
    assert [d.gen_throughput for d in steady_decode(log)] == [112.51, 112.05, 110.0, 111.0]


@pytest.mark.field_case("B07")
def test_gauge_that_keeps_its_old_value_is_not_looked_at() -> None:
    assert judged(counters=deltas(**{"sglang:gen_throughput": 112.0, "last_gen_throughput": 4.0})) == set()


@pytest.mark.field_case("B08", "X01")
def test_prompts_that_come_from_the_cache_make_it_invalid_beyond_two_percent() -> None:
    def cached(tokens: int) -> set[Kind]:
        lines = [
            line.replace(
                "#new-token: 16384, #cached-token: 0", f"#new-token: {16384 - tokens}, #cached-token: {tokens}"
            )
            for line in run_lines()
        ]
        problems = check(healthy(), log_of(*lines), PLAN)
        assert any("came from the cache" in p.message for p in problems)
        return kinds(problems)

    assert cached(8000) == {Kind.CACHED_TOKENS}
    assert cached(100) == set()  # 0.6 %: said, and counted
    assert judged(counters=deltas(cached_tokens_total=0.5 * PLAN.input_tokens)) == {Kind.CACHED_TOKENS}


@pytest.mark.field_case("B10")
def test_first_measured_prompt_that_the_warm_up_left_in_the_cache_is_seen() -> None:
    lines = run_lines(ALONE)
    first = next(i for i, line in enumerate(lines) if "Prefill" in line and i > 5)
    lines[first] = prefill_line(3, 1, 1, cached=1023)
    assert judged(log=log_of(*lines), plan=ALONE) == {Kind.CACHED_TOKENS}


@pytest.mark.field_case("B11")
def test_more_warm_up_requests_than_the_concurrency_are_warned_of() -> None:
    plan = replace(PLAN, warmup_requests=100)
    assert kinds(check(healthy(plan), None, plan), invalid=False) == {Kind.WARMUP_BURST}


@pytest.mark.field_case("B12")
def test_slow_first_token_after_the_clients_pause_does_not_spoil_a_single_stream() -> None:
    assert judged(healthy(ALONE, p99_ttft_ms=400.0), plan=ALONE) == set()


@pytest.mark.field_case("B13")
def test_prompts_half_as_long_because_of_the_range_ratio_are_noticed() -> None:
    assert Kind.INPUT_LENGTH in judged(healthy(total_input_tokens=PLAN.input_tokens // 2))


@pytest.mark.field_case("B14")
def test_text_prompts_that_came_back_longer_are_noticed_in_log_counter_and_details() -> None:
    longer = [line.replace("#new-token: 16384", "#new-token: 20480") for line in run_lines()]
    assert judged(log=log_of(*longer)) == {Kind.INPUT_LENGTH}
    assert judged(counters=deltas(prompt_tokens_total=1.25 * PLAN.prompted_with_warmup)) == {Kind.INPUT_LENGTH}
    assert judged(healthy(input_lens=(1280,) * 80)) == {Kind.INPUT_LENGTH}


def test_longer_prompts_are_noticed_behind_pages_and_exact_ones_are_not() -> None:
    plan = Plan(16, 80, 1000, 256)
    startup = [f"[{stamp(-9)}] server_args=ServerArgs(page_size=256, device='cuda')"]
    assert judged(log=log_of(*startup, *run_lines(plan, page=256)), plan=plan) == set()
    longer = replace(plan, input_len=1250)
    assert judged(log=log_of(*startup, *run_lines(longer, page=256)), plan=plan) == {Kind.INPUT_LENGTH}


def test_longer_prompts_are_noticed_where_every_batch_holds_a_cut_one() -> None:
    def chunked(each: int) -> set[Kind]:
        lines = [line for line in run_lines() if "#new-seq: 16" not in line]
        return judged(log=log_of(*lines, *(prefill_line(3 + i, 1, each, running=9, pending=9000) for i in range(80))))

    assert chunked(1024) == set()
    assert chunked(1280) == {Kind.INPUT_LENGTH}


@pytest.mark.field_case("B15")
def test_itl_per_verify_step_under_speculation_is_no_standstill() -> None:
    speculative = healthy(tpot_ms=3.2, accept_length=2.7, mean_itl_ms=8.72, median_itl_ms=8.72, p99_itl_ms=20.0)
    assert judged(speculative) == set()


@pytest.mark.field_case("B16")
def test_itl_of_zero_is_invalid() -> None:
    assert judged(healthy(mean_itl_ms=0.0)) == {Kind.LATENCY}
    assert judged(healthy(mean_itl_ms=None, median_itl_ms=None)) == {Kind.LATENCY}


@pytest.mark.field_case("B17")
def test_samples_with_other_numbers_of_tokens_a_chunk_do_not_compare() -> None:
    one, four = healthy(), healthy(tpot_ms=2.0, mean_itl_ms=8.0)
    assert tokens_per_chunk(four) == 4.0
    assert [p.kind for p in compare([one, four])] == [Kind.TOKENS_PER_CHUNK]
    assert compare([one, one]) == []
    startup = f"[{stamp(-9)}] server_args=ServerArgs(stream_interval=4, page_size=1, device='cuda')"
    assert kinds(check(healthy(), log_of(*run_lines(), startup), PLAN), invalid=False) == {Kind.TOKENS_PER_CHUNK}


@pytest.mark.field_case("B19")
def test_early_end_is_a_failure_and_a_retokenised_shortfall_alone_a_warning() -> None:
    early = healthy(
        output_lens=(256,) * 77 + (200, 197, 164),
        total_output_tokens=PLAN.output_tokens - 207,
        output_throughput=(PLAN.output_tokens - 207) / healthy().duration_s,
    )
    problems = check(early, None, PLAN)
    assert kinds(problems) == {Kind.OUTPUT_LENGTH}
    assert any("197" in line for line in problems[0].evidence)
    shortfall = check(healthy(total_output_tokens_retokenized=int(0.55 * PLAN.output_tokens)), None, PLAN)
    assert kinds(shortfall) == set()
    assert kinds(shortfall, invalid=False) == {Kind.OUTPUT_SHORTFALL}


@pytest.mark.field_case("B20")
def test_too_few_prompts_for_a_steady_state_are_warned_of() -> None:
    plan = Plan(64, 64, 1024, 256)
    assert kinds(check(healthy(plan), None, plan), invalid=False) == {Kind.TOO_FEW_PROMPTS}


# What the real client of 0.5.23 reported of a scripted server: 16 prompts, C=4, 64 tokens each.
SCRIPTED = Plan(concurrency=4, num_prompts=16, input_len=4, output_len=64)
HONEST = {"duration_s": 0.6287, "output_throughput": 1628.87, "concurrency": 3.87, "mean_ttft_ms": 6.83}


def _scripted(**changes: Any) -> Sample:
    latencies = {"mean_tpot_ms": 2.3056, "median_tpot_ms": 2.31, "mean_itl_ms": 2.3, "median_ttft_ms": 6.8}
    figures = {**HONEST, **latencies, "mean_e2e_latency_ms": 152.08, "request_throughput": 25.45, **changes}
    return healthy(SCRIPTED, **figures)


def test_honest_run_of_the_scripted_server_counts_without_a_word() -> None:
    assert check(_scripted(), None, SCRIPTED) == []


@pytest.mark.field_case("B17")
def test_run_with_four_tokens_a_chunk_counts() -> None:
    chunked = {"duration_s": 0.5667, "output_throughput": 1807.0, "request_throughput": 28.23, "concurrency": 3.944}
    latencies = {"mean_ttft_ms": 12.94, "median_ttft_ms": 12.9, "mean_tpot_ms": 2.012, "median_tpot_ms": 2.01}
    sample = _scripted(**chunked, **latencies, mean_itl_ms=8.05, mean_e2e_latency_ms=139.7)
    assert kinds(check(sample, None, SCRIPTED)) == set()


@pytest.mark.field_case("B26")
def test_three_seconds_of_server_info_show_in_the_concurrency_even_with_few_prompts() -> None:
    slow = {"duration_s": 3.65, "output_throughput": 280.5, "request_throughput": 4.38, "concurrency": 0.69}
    latencies = {"mean_ttft_ms": 12.2, "mean_tpot_ms": 2.30, "median_tpot_ms": 2.40, "mean_e2e_latency_ms": 157.1}
    assert Kind.CONCURRENCY in judged(_scripted(**slow, **latencies), plan=SCRIPTED)


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"total_output_tokens_retokenized": 0, "mean_ttft_ms": 0.0, "mean_itl_ms": 0.0}, "B02"),
        ({"total_output_tokens": 64}, "B01"),
        ({"completed": 8, "total_output_tokens": 512}, "B03"),
    ],
)
def test_bad_run_of_the_scripted_server_never_counts(changes: dict[str, Any], row: str) -> None:
    assert judged(_scripted(**changes), plan=SCRIPTED), row


@pytest.mark.field_case("B21")
@pytest.mark.parametrize(("share", "expected"), [(0.89, set()), (0.9, {Kind.CLIENT_BOUND}), (1.4, {Kind.CLIENT_BOUND})])
def test_client_at_its_limit_makes_it_invalid(share: float, expected: set[Kind]) -> None:
    assert judged(healthy(client_cpu_share=share)) == expected


@pytest.mark.field_case("B22")
def test_text_held_back_and_sent_in_a_burst_does_not_change_the_token_count() -> None:
    burst = healthy(p99_itl_ms=900.0, median_itl_ms=1.0, total_output_tokens_retokenized=int(0.93 * PLAN.output_tokens))
    assert check(burst, None, PLAN) == []


@pytest.mark.field_case("B23")
def test_accept_length_that_differs_between_samples_or_from_the_window_is_said() -> None:
    fast, slow = healthy(accept_length=5.12), healthy(accept_length=3.87)
    assert [p.kind for p in compare([fast, slow])] == [Kind.ACCEPT_LENGTH]
    assert compare([fast, healthy(accept_length=5.05)]) == []
    assert compare([fast, healthy()])[-1].invalid
    log = log_of(*(line.replace("cuda graph: True", "accept len: 3.87, cuda graph: True") for line in run_lines()))
    assert kinds(check(fast, log, PLAN), invalid=False) == {Kind.ACCEPT_LENGTH}
    assert check(slow, log, PLAN) == []


@pytest.mark.field_case("B24")
def test_peak_of_concurrent_requests_is_never_evidence() -> None:
    assert check(healthy(ALONE, extra={"max_concurrent_requests": 8}), None, ALONE) == []


@pytest.mark.field_case("B25")
def test_infinity_is_read_and_two_lines_are_not_one() -> None:
    line = (
        '{"request_rate": Infinity, "max_concurrency": 16, "duration": 2.0, "completed": 1, "total_input_tokens": 4, '
        '"total_output_tokens": 8, "output_throughput": 4.0}'
    )
    assert read_sample(line).max_concurrency == 16
    with pytest.raises(SampleError):
        read_sample(f"{line}\n{line}")


@pytest.mark.field_case("B26")
def test_duration_that_holds_a_slow_server_info_is_noticed_without_and_with_the_log() -> None:
    slow = healthy(duration_s=healthy().duration_s + 12, concurrency=None)
    slow = replace(
        slow,
        output_throughput=slow.total_output_tokens / slow.duration_s,
        request_throughput=slow.completed / slow.duration_s,
        concurrency=slow.completed * (slow.mean_e2e_latency_ms or 0) / 1000 / slow.duration_s,
    )
    assert judged(slow) == {Kind.CONCURRENCY}
    lines = [line for line in run_lines() if "server_info" not in line]
    assert judged(log=log_of(*lines, access_line(26, "GET /server_info"))) == {Kind.SLOW_SERVER_INFO}


@pytest.mark.field_case("B27")
def test_throughput_in_the_log_is_not_held_against_the_clients() -> None:
    log = log_of(*(line.replace("1700.00", "3900.00") for line in run_lines()))
    assert check(healthy(), log, PLAN) == []


def test_result_line_of_another_run_is_told_by_its_settings_its_model_and_its_time() -> None:
    assert judged(healthy(max_concurrency=64)) == {Kind.WRONG_RESULT}
    assert judged(healthy(random_output_len=1024)) == {Kind.WRONG_RESULT}
    assert judged(healthy(random_input_len=8)) == {Kind.WRONG_RESULT}
    assert judged(healthy(max_concurrency=None)) == {Kind.WRONG_RESULT}
    assert judged(healthy(served_model_name="other"), log_of(*run_lines())) == {Kind.WRONG_RESULT}
    assert judged(healthy(served_model_name="other"), served_model_name="dsv4") == {Kind.WRONG_RESULT}
    assert judged(healthy(started_at=0.0, ended_at=5.0)) == {Kind.WRONG_RESULT}


@pytest.mark.parametrize(
    "change",
    [
        {"output_throughput": 99999.0},
        {"duration_s": 1.0},
        {"duration_s": 0.0},
        {"duration_s": float("inf")},
        {"request_throughput": 1.0},
        {"total_throughput": 1.0},
        {"mean_e2e_latency_ms": 100.0},
        {"concurrency": 3.0},
        {"p99_tpot_ms": 1.0},
    ],
)
def test_figures_that_contradict_each_other_are_invalid(change: dict[str, float]) -> None:
    assert Kind.INCONSISTENT in judged(healthy(**change))


def test_more_tokens_than_littles_law_allows_is_a_fault_in_the_numbers() -> None:
    sample = healthy()
    twice = replace(sample, duration_s=sample.duration_s / 2, output_throughput=sample.output_throughput * 2)
    assert Kind.ABOVE_LITTLE in judged(twice)
    assert Kind.CONCURRENCY in judged(healthy(concurrency=20.0))


@pytest.mark.parametrize(("share", "expected"), [(0.35, {Kind.STANDSTILL}), (0.45, set())])
def test_standstill_begins_below_the_share_of_littles_law(share: float, expected: set[Kind]) -> None:
    # All of the lost time is before the first token, so that the other figures still agree.
    plan, tpot = PLAN, 9.0
    ttft = tpot * plan.output_len / share / 1.01 - tpot * (plan.output_len - 1)
    assert judged(healthy(plan, tpot, ttft)) == expected


def test_one_late_first_token_among_many_is_noticed_and_the_burst_at_the_start_is_not() -> None:
    late = healthy(ttfts_s=(2.5,) * 16 + (0.12,) * 63 + (4.0,))
    assert judged(late) == {Kind.TTFT_OUTLIER}
    assert judged(healthy(ttfts_s=(2.5,) * 16 + (0.12,) * 64)) == set()
    assert judged(healthy(ALONE, p99_ttft_ms=9000.0), plan=ALONE) == {Kind.TTFT_OUTLIER}


def test_failed_requests_in_the_details_fail_the_sample() -> None:
    assert judged(healthy(errors=("boom",))) == {Kind.REQUEST_ERROR}


@pytest.mark.field_case("C19")
def test_a_pause_between_two_tokens_is_a_standstill_however_long_the_sample() -> None:
    long = Plan(16, 16 * 60, 1024, 256)
    assert judged(healthy(long, longest_itl_s=8.1), plan=long) == {Kind.STANDSTILL}
    assert judged(healthy(long, longest_itl_s=2.0), plan=long) == set()
    assert judged(healthy(long, longest_itl_s=None), plan=long) == set()


@pytest.mark.parametrize(("pause", "expected"), [(0.9, set()), (1.2, {Kind.STANDSTILL}), (4.9, {Kind.STANDSTILL})])
def test_a_pause_of_a_second_spoils_a_sample_of_seconds(pause: float, expected: set[Kind]) -> None:
    """As on an H200 at C=64: 5 s a sample, of which 4.9 more would halve the throughput and leave everything else alone."""
    short = Plan(64, 384, 256, 128)
    sample = healthy(short, tpot_ms=5.5, ttft_ms=150.0, longest_itl_s=pause)
    assert sample.duration_s < 6
    assert judged(sample, plan=short) == expected


def test_what_counts_as_a_pause_is_the_recipes() -> None:
    sample = healthy(longest_itl_s=4.9)
    assert kinds(check(sample, None, PLAN, limits=Limits(stall_s=5.0))) == set()
    assert kinds(check(sample, None, PLAN, limits=Limits(stall_s=4.5))) == {Kind.STANDSTILL}


def test_a_pause_while_long_prompts_are_prefilled_is_none() -> None:
    assert judged(healthy(PLAN, ttft_ms=2000.0, longest_itl_s=5.5)) == set()
    assert judged(healthy(PLAN, ttft_ms=2000.0, longest_itl_s=6.5)) == {Kind.STANDSTILL}


@pytest.mark.parametrize(
    ("itls", "longest"),
    [([[0.01, 0.5], [0.02]], 0.5), ([0.01, 0.2], 0.2), ([], None), ([[]], None), ("x", None), (None, None)],
)
def test_the_longest_pause_is_read_from_the_clients_details(itls: object, longest: float | None) -> None:
    row = {"duration": 1.0, "output_throughput": 1.0, "completed": 1, "total_input_tokens": 1, "total_output_tokens": 1}
    assert read_sample(json.dumps(row | {"itls": itls})).longest_itl_s == longest
