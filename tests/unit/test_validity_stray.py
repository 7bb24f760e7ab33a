"""Requests and processes that are not ours (rows X)."""

from __future__ import annotations

import pytest
from validity_kit import (
    ALONE,
    PLAN,
    START,
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

from perfgate.gpu_sampling import UNTOUCHED
from perfgate.validity import Limits, check
from perfgate.validity import ProblemKind as Kind
from perfgate.validity.host import check_host
from perfgate.workload import Plan


@pytest.mark.field_case("X02")
@pytest.mark.parametrize("logged", [True, False], ids=["access log", "no access log"])
def test_health_probes_are_told_from_strangers(logged: bool) -> None:
    lines = run_lines(ALONE)
    if not logged:
        lines = [line for line in lines if "INFO:" not in line]
    for number, at in enumerate((12.0, 13.0, 14.0)):
        lines.insert(-2, prefill_line(at, 1, 1, cached=min(number, 1)))
        if logged:
            lines.insert(-2, access_line(at + 1, "GET /health", client="127.0.0.1:52000"))
    problems = check(healthy(ALONE), log_of(*lines), ALONE)
    assert kinds(problems) == set()
    assert kinds(problems, invalid=False) == {Kind.HEALTH_PROBE}


@pytest.mark.field_case("X02")
def test_health_probe_on_a_server_with_pages_fills_a_page_and_is_no_stranger() -> None:
    plan = Plan(1, 5, 256, 256)  # a prompt fills one page as well: only the access line tells
    startup = f"[{stamp(-9)}] server_args=ServerArgs(page_size=256, device='cuda')"
    lines = [startup, *run_lines(plan, page=256)]
    probe = prefill_line(3, 1, 256)
    assert Kind.STRAY_PREFILL in judged(healthy(plan), log_of(*lines, probe), plan)
    asked = access_line(4, "GET /health")
    assert judged(healthy(plan), log_of(*lines, probe, asked), plan) == set()


@pytest.mark.field_case("X03")
def test_seventeen_running_at_sixteen_is_a_stranger_and_the_lines_say_when() -> None:
    lines = [*run_lines(), *(decode_line(5 + i, 17) for i in range(3))]
    problems = check(healthy(), log_of(*lines), PLAN)
    assert kinds(problems) == {Kind.STRAY_REQUESTS}
    assert [line[:21] for line in problems[0].evidence] == [f"[{stamp(5 + i)}]" for i in range(3)]


@pytest.mark.field_case("X03")
def test_waiting_requests_count_like_running_ones() -> None:
    assert judged(log=log_of(*run_lines(), decode_line(5, 14, queued=3))) == {Kind.STRAY_REQUESTS}
    assert judged(log=log_of(*run_lines(), decode_line(5, 14, queued=2))) == set()


def test_data_parallel_ranks_are_added_up_before_they_are_compared() -> None:
    def ranks(first: int, second: int) -> list[str]:
        pairs = ((first, " DP0 TP0"), (second, " DP1 TP1"))
        return [decode_line(at, n, rank=rank) for at in range(4) for n, rank in pairs]

    assert judged(log=log_of(*ranks(9, 8))) == {Kind.STRAY_REQUESTS}
    assert judged(log=log_of(*ranks(8, 8))) == set()


def test_requests_that_move_between_data_parallel_ranks_are_not_counted_twice() -> None:
    moving = [(12, " DP0 TP0"), (4, " DP1 TP1"), (4, " DP0 TP0"), (12, " DP1 TP1")]  # all in one second
    assert judged(log=log_of(*(decode_line(3, n, rank=rank) for n, rank in moving))) == set()


def test_other_ranks_of_one_group_repeat_the_same_batches() -> None:
    lines = [*run_lines(), *(decode_line(3, 16, rank=rank) for rank in (" TP0", " TP1"))]
    assert judged(log=log_of(*lines)) == set()


@pytest.mark.field_case("X04")
def test_short_stray_request_between_decode_lines_is_caught_three_ways() -> None:
    short = prefill_line(5, 1, 37, running=15)
    problems = check(healthy(), log_of(*run_lines(), short), PLAN)
    assert kinds(problems) == {Kind.STRAY_PREFILL}
    assert problems[0].evidence == (short,)
    stranger = access_line(5, client="10.0.0.9:41234")
    assert judged(log=log_of(*run_lines(), stranger)) == {Kind.STRAY_CLIENT, Kind.STRAY_REQUESTS}
    counters = deltas(num_requests_total=PLAN.requests + 1.0)
    assert judged(counters=counters) == {Kind.STRAY_REQUESTS}


def test_stray_request_of_the_planned_length_is_caught_by_number() -> None:
    assert judged(log=log_of(*run_lines(), prefill_line(5, 1, 1024, running=15))) == {Kind.STRAY_PREFILL}


def test_prompt_that_was_cut_into_two_batches_is_no_stranger() -> None:
    lines = run_lines()
    at = next(i for i, line in enumerate(lines) if "#new-seq: 16" in line)
    lines[at : at + 1] = [
        prefill_line(2, 8, 8000, pending=8384),
        prefill_line(2, 9, 8384, running=7),
    ]
    assert judged(log=log_of(*lines)) == set()


def test_other_path_or_a_profiler_in_the_window_is_a_stranger() -> None:
    for request in ("POST /v1/chat/completions", "POST /start_profile"):
        assert Kind.STRAY_CLIENT in judged(log=log_of(*run_lines(), access_line(4, request)))


def test_scrapes_and_looks_at_the_model_are_nobodys_traffic() -> None:
    lines = [*run_lines(), access_line(30, "GET /metrics", "10.0.0.3:9"), access_line(30, "GET /metrics")]
    assert judged(log=log_of(*lines)) == set()


def test_log_with_fewer_requests_than_were_sent_is_another_servers() -> None:
    lines = run_lines(Plan(16, 32, 1024, 256))
    assert judged(log=log_of(*lines)) == {Kind.REQUESTS_MISSING}
    assert judged(log=log_of(*lines, startup=False)) == set()  # an excerpt proves nothing by what it lacks


def test_flush_in_the_middle_is_said() -> None:
    lines = run_lines()
    lines.insert(len(lines) // 2, access_line(6, "POST /flush_cache"))
    assert kinds(check(healthy(), log_of(*lines), PLAN), invalid=False) == {Kind.FLUSH}


@pytest.mark.field_case("X05")
def test_foreign_process_on_the_gpu_makes_it_invalid() -> None:
    problems = check(healthy(foreign_pids=(4242,)), None, PLAN)
    assert kinds(problems) == {Kind.FOREIGN_PROCESS}
    assert problems[0].evidence == ("pid 4242",)


def test_throttling_makes_it_invalid_and_an_idle_gpu_does_not() -> None:
    assert judged(healthy(throttle_reasons=("sw_thermal_slowdown",), clocks_mhz=(1980, 1410))) == {Kind.THROTTLED}
    assert judged(healthy(throttle_reasons=("gpu_idle",))) == set()


def test_a_power_limit_at_the_highest_clock_is_noted_and_counts() -> None:
    sample = healthy(throttle_reasons=(f"GPU 0: {UNTOUCHED} (13%)",), clocks_mhz=(1980,))
    (found,) = check_host(sample, Limits())
    assert (found.kind, found.invalid) == (Kind.THROTTLED, False)
    assert found.evidence == (f"GPU 0: {UNTOUCHED} (13%)", "clocks 1980 to 1980 MHz")
    both = healthy(throttle_reasons=(f"GPU 0: {UNTOUCHED} (13%)", "GPU 0: thermal (hardware) (20%)"))
    assert [p.invalid for p in check_host(both, Limits())] == [True]


def test_counters_with_labels_and_prefix_are_summed_by_name() -> None:
    half = PLAN.requests / 2
    labelled = {
        'sglang:num_requests_total{model_name="a",is_streaming="true"}': PLAN.requests - half,
        'sglang:num_requests_total{model_name="a",is_streaming="false"}': half,
        "sglang:generation_tokens_total": float(PLAN.generated_with_warmup),
        "sglang:prompt_tokens_total": float(PLAN.prompted_with_warmup),
        "sglang:num_running_reqs": 3.0,
    }
    assert check(healthy(), None, PLAN, labelled) == []


def test_counter_that_never_fired_is_zero_and_a_family_that_this_version_lacks_is_no_fault() -> None:
    counters = deltas()
    del counters["num_requests_total"]  # 0.4.1
    assert judged(counters=counters) == set()
    assert judged(counters={}) == {Kind.COUNTERS}
    assert judged(counters=deltas(num_aborted_requests_total=2.0)) == {Kind.COUNTERS}
    assert judged(counters=deltas(num_retracted_requests_total=2.0)) == {Kind.RETRACTION}


def test_counters_of_the_sample_are_used_when_none_are_given() -> None:
    assert judged(healthy(counters=deltas(num_requests_total=99.0))) == {Kind.STRAY_REQUESTS}


def test_sample_is_found_in_a_whole_log_by_its_times_even_without_access_lines() -> None:
    other = [line for line in run_lines(Plan(64, 320, 1024, 256), at=-60) if "INFO:" not in line]
    own = [line for line in run_lines() if "INFO:" not in line]
    sample = healthy(started_at=START, ended_at=START + 15)
    assert judged(sample, log_of(*other, *own)) == set()


def test_a_request_that_has_just_ended_beside_its_successor_is_no_stranger() -> None:
    # Overlap scheduling: at C=16 ten requests ended, their successors are new, and one of the ended is still counted.
    overlapped = prefill_line(5, 10, 10 * PLAN.input_len, running=7)
    found = judged(log=log_of(*run_lines(), overlapped))
    assert Kind.STRAY_REQUESTS not in found


@pytest.mark.parametrize(("running", "stranger"), [(32, False), (33, True)])
def test_a_whole_wave_that_ended_beside_its_successors_is_no_stranger_and_more_is(running: int, stranger: bool) -> None:
    found = judged(log=log_of(*run_lines(), prefill_line(5, 1, PLAN.input_len, running=running)))
    assert (Kind.STRAY_REQUESTS in found) is stranger
