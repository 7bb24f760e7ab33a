"""What the server did in the window: JIT, retraction, graphs, pauses, failures."""

from __future__ import annotations

import pytest
from validity_kit import PLAN, STARTUP, decode_line, healthy, judged, kinds, log_of, prefill_line, run_lines, stamp

from perfgate.serverlog import parse
from perfgate.validity import ProblemKind as Kind
from perfgate.validity import check


@pytest.mark.field_case("C19")
@pytest.mark.parametrize(
    "text",
    [
        "Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)",
        "Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=4096, K=4096, num_groups=1 with all Ms.",
    ],
)
def test_jit_between_the_first_and_last_batch_makes_the_sample_invalid(text: str) -> None:
    lines = run_lines()
    lines.insert(len(lines) // 2, f"[{stamp(6)} TP0] {text}")
    problems = check(healthy(), log_of(*lines), PLAN)
    assert kinds(problems) == {Kind.JIT}
    assert text in problems[0].evidence[0]


def test_jit_before_the_sample_is_not_held_against_it() -> None:
    earlier = f"[{stamp(-300)}] Entering DeepGEMM JIT Pre-Compile session."
    sample = healthy(started_at=parse(run_lines()[0]).events[0].time, ended_at=(parse(run_lines()[-1]).events[0].time))
    own = [line for line in run_lines() if "INFO:" not in line]
    assert Kind.JIT not in judged(sample, log_of(earlier, *own))


@pytest.mark.field_case("C27")
def test_retraction_with_a_full_pool_makes_it_invalid_and_shows_the_full_usage() -> None:
    retract = f"[{stamp(5)}] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 2048"
    lines = [
        *run_lines(),
        decode_line(5, 16, full=1.0),
        retract,
        *(decode_line(6 + i, 16, throughput=30) for i in range(3)),
    ]
    problems = check(healthy(), log_of(*lines), PLAN)
    assert kinds(problems) == {Kind.RETRACTION}
    assert problems[0].evidence[0] == retract
    assert "full token usage: 1.00, #swa token: 4096, swa token usage: 0.06" in problems[0].evidence[1]


@pytest.mark.field_case("C27")
def test_full_pool_without_retraction_is_a_warning() -> None:
    log = log_of(*run_lines(), decode_line(5, 16, full=1.0))
    assert kinds(check(healthy(), log, PLAN), invalid=None) == {Kind.KV_FULL}


@pytest.mark.field_case("R05")
def test_decode_without_graphs_inside_the_captured_sizes_is_invalid_however_fast() -> None:
    off = decode_line(5, 16, graph="cuda graph: False")
    problems = check(healthy(), log_of(*run_lines(), off), PLAN)
    assert kinds(problems) == {Kind.GRAPH_OFF}
    assert problems[0].evidence == (off,)


def test_decode_without_graphs_is_invalid_when_the_log_names_no_sizes() -> None:
    log = log_of(*run_lines(), decode_line(5, 16, graph="cuda graph: False"), startup=False)
    assert judged(log=log) == {Kind.GRAPH_OFF}


def test_batch_above_the_captured_sizes_is_a_warning() -> None:
    startup = [line.replace("8, 16]", "8]") for line in STARTUP]
    lines = [line.replace("cuda graph: True", "cuda graph: False") for line in run_lines()]
    log = log_of(*startup, *lines, startup=False)
    assert kinds(check(healthy(), log, PLAN), invalid=None) == {Kind.GRAPH_OFF}
    assert judged(log=log) == set()


def test_graphs_switched_off_by_argument_are_said_with_the_argument() -> None:
    startup = f"[{stamp(-9)}] server_args=ServerArgs(disable_cuda_graph=True, page_size=1, device='cuda')"
    lines = [line.replace("cuda graph: True", "cuda graph: False") for line in run_lines()]
    problems = check(healthy(), log_of(startup, *lines, startup=False), PLAN)
    assert [(p.kind, p.invalid) for p in problems] == [(Kind.GRAPH_OFF, False)]
    assert "disable_cuda_graph=True" in problems[0].message


def test_cpu_engine_has_no_graphs_to_be_off() -> None:
    lines = [line.replace("cuda graph: True", "cpu graph: False") for line in run_lines()]
    assert judged(log=log_of(*lines, startup=False)) == set()


def test_prefill_without_graphs_is_normal() -> None:
    assert any("cuda graph: False" in line for line in run_lines())
    assert judged(log=log_of(*run_lines())) == set()


def test_pause_between_batches_is_a_standstill_even_where_littles_law_is_kept() -> None:
    lines = run_lines()
    late = [line for line in lines if line.startswith(f"[{stamp(7)[:-1]}")]
    assert late
    # The last two waves come ten seconds later than they should.
    moved = [line.replace(stamp(at), stamp(at + 10)) for line in lines for at in [_second(line)] if at >= 9]
    kept = [line for line in lines if _second(line) < 9]
    problems = check(healthy(), log_of(*kept, *moved), PLAN)
    assert kinds(problems) == {Kind.STANDSTILL}
    assert len(problems[0].evidence) == 2


def _second(line: str) -> int:
    return next(at for at in range(-100, 100) if stamp(at) in line)


def test_pause_between_warm_up_and_sample_is_nobodys_standstill() -> None:
    lines = [line.replace(stamp(0), stamp(-20)) for line in run_lines()]
    assert judged(log=log_of(*lines)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "Scheduler hit an exception: Traceback (most recent call last):",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "Detected errors during sampling! NaN in the logits.",
        "The request queue is full.",
    ],
)
def test_failure_in_the_window_makes_it_invalid(text: str) -> None:
    lines = run_lines()
    lines.insert(len(lines) // 2, text)
    assert judged(log=log_of(*lines)) == {Kind.SERVER_FAULT}


@pytest.mark.parametrize(
    "text",
    [
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)",
        "token_to_kv_pool_allocator memory leak detected! available_size=1",
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.",
    ],
)
def test_trouble_that_the_sample_survived_is_a_warning(text: str) -> None:
    lines = run_lines()
    lines.insert(len(lines) // 2, text)
    assert kinds(check(healthy(), log_of(*lines), PLAN), invalid=None) == {Kind.SERVER_FAULT}
    assert judged(log=log_of(*lines)) == set()


def test_noise_after_the_shutdown_began_is_not_held_against_the_sample() -> None:
    stop = f"[{stamp(30)}] SIGTERM received. signum=15 frame=None. Draining requests and shutting down..."
    assert judged(log=log_of(*run_lines(), stop, "CUDA error: driver shutting down")) == set()


def test_plug_in_that_failed_to_load_means_an_unpatched_server() -> None:
    failed = f"[{stamp(-80)}] Failed to load plugin dsv4_kernels from group sglang.srt.plugins"
    assert judged(log=log_of(failed, *run_lines())) == {Kind.SERVER_FAULT}


def test_torn_batch_lines_are_said() -> None:
    log = log_of(*run_lines(), f"[{stamp(4)}] Decode batch, #running-req: 1")
    assert kinds(check(healthy(), log, PLAN), invalid=None) == {Kind.UNREADABLE_LOG}


def test_server_that_admits_fewer_than_c_is_said() -> None:
    lines = [line.replace("#running-req: 16", "#running-req: 12") for line in run_lines()]
    lines = [line.replace("#queue-req: 0", "#queue-req: 4") if "Decode" in line else line for line in lines]
    assert kinds(check(healthy(), log_of(*lines), PLAN), invalid=None) == {Kind.QUEUED}


def test_retracted_prompts_that_are_prefilled_again_are_no_strangers() -> None:
    retract = f"[{stamp(5)}] KV cache pool is full. Retract requests. #retracted_reqs: 1"
    log = log_of(*run_lines(), retract, prefill_line(6, 1, 1024, running=15))
    assert judged(log=log) == {Kind.RETRACTION}


def test_a_server_that_admits_fewer_than_asked_is_slow_and_did_not_stand_still() -> None:
    slow = healthy(output_throughput=healthy().output_throughput * 0.25, duration_s=healthy().duration_s * 4)
    lines = [line.replace("#running-req: 16", "#running-req: 4") for line in run_lines()]
    queued = [line.replace("#queue-req: 0", "#queue-req: 12") if "Decode" in line else line for line in lines]
    assert Kind.STANDSTILL in kinds(check(slow, log_of(*run_lines()), PLAN))
    found = check(slow, log_of(*queued), PLAN)
    assert Kind.STANDSTILL not in kinds(found)
    assert {Kind.STANDSTILL, Kind.QUEUED} <= kinds(found, invalid=None)
