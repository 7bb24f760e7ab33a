"""Hangs, collectives, noise after shutdown and harmless look-alikes."""

from __future__ import annotations

import pytest
from test_diagnosis_crashes import OOM, READY, decode, died

from perfgate.diagnosis import Cause, diagnose, keep_server_for_s
from perfgate.diagnosis.health import heartbeat_gap_s

NCCL = (
    "[rank{rank}]:[E210 02:06:33.347835395 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank {rank}] Watchdog"
    " caught collective"
    " operation timeout: WorkNCCL(SeqNum=88, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=600000)"
    " ran for 600003"
    " milliseconds before timing out.\n"
)
OLD_WATCHDOG = "[2025-06-25 04:10:00 TP0] Watchdog timeout (self.watchdog_timeout=300)\n"
NEW_WATCHDOG = "[2026-06-25 04:10:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n"
PYSPY = "[2026-06-25 04:09:59 TP0] Pyspy failed to dump PID 77: /bin/sh: 1: py-spy: command not found\n"
HEALTH = (
    "[2026-06-25 {tic}] Health check failed. Server couldn't get a response from detokenizer for last 20"
    " seconds. tic start time:"
    " {tic}. last_heartbeat time: {beat}\n"
)
SIGTERM = "[2026-11-15 04:20:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"


@pytest.mark.field_case("C10")
def test_collective_timeout_is_the_cause_only_without_an_earlier_fault_in_another_rank():
    timeouts = "".join(NCCL.format(rank=rank) for rank in (1, 0, 2, 3))
    alone = diagnose(READY + decode() + timeouts)
    assert (alone.cause, alone.first_rank) == (Cause.NCCL_TIMEOUT, "rank1")
    assert alone.details["ranks"] == ("rank1", "rank0", "rank2", "rank3")
    after = diagnose(READY + died("ValueError: bad page table", rank=" TP5") + timeouts)
    assert (after.cause, after.first_rank) == (Cause.SERVER_DIED, "TP5")
    assert "bad page table" in after.reason
    assert diagnose(READY + died(OOM, rank=" TP5") + timeouts).cause is Cause.GPU_OOM


@pytest.mark.field_case("C10")
def test_order_is_the_position_in_the_file_whatever_the_dates_say():
    log = READY + NCCL.format(rank=1) + died(OOM).replace("2026-11-15", "2019-01-01")
    assert diagnose(log).cause is Cause.NCCL_TIMEOUT


@pytest.mark.field_case("C12")
@pytest.mark.parametrize("line", [OLD_WATCHDOG, NEW_WATCHDOG])
def test_watchdog_is_a_hang_in_both_spellings_and_pyspy_is_not_its_cause(line):
    found = diagnose(READY + decode() + PYSPY + line)
    assert (found.cause, found.first_rank) == (Cause.HANG_WATCHDOG, "TP0")
    assert found.details["watchdog_timeout_s"] == 300.0
    assert PYSPY.strip() not in found.evidence
    assert "py-spy" not in found.advice


@pytest.mark.field_case("C12")
def test_soft_watchdog_is_a_warning():
    soft = NEW_WATCHDOG.replace("False", "True")
    found = diagnose(READY + decode() + PYSPY + soft + decode())
    assert (found.cause, found.fatal) == (Cause.NONE, False)
    assert found.warnings == (soft.strip(),)


@pytest.mark.field_case("C13")
def test_full_but_evictable_pool_in_the_dump_is_a_deadlock_and_not_lack_of_capacity():
    dump = (
        "[2026-11-15 04:10:00 TP0] Scheduler debug info:\n"
        "[full] total=1935616, available=256, evictable=1935360, protected=0\n"
    )
    found = diagnose(READY + decode() + dump + NEW_WATCHDOG)
    assert found.cause is Cause.HANG_WATCHDOG
    assert (found.details["pool_available"], found.details["pool_evictable"]) == (256, 1935360)
    assert any("evictable=1935360" in line for line in found.evidence)
    assert "deadlock" in found.advice
    for wrong in ("fewer", "lower --max-running", "reduce"):
        assert wrong not in found.advice.lower()


@pytest.mark.field_case("C15")
def test_server_is_kept_until_its_watchdog_could_have_spoken():
    args = "[2026-11-15 04:00:00] server_args=ServerArgs(model_path='m', watchdog_timeout=300, dist_timeout=None)\n"
    assert keep_server_for_s(args, since_last_token_s=120.0) >= 300 - 120
    assert keep_server_for_s(args.replace("300", "60")) < 150
    assert keep_server_for_s(args + NEW_WATCHDOG) == 0.0
    found = diagnose(
        args + READY + decode() + NEW_WATCHDOG, exit_code=124, client_output=" 10%|#  | 1/10 [00:00<00:00,  3.27it/s]"
    )
    assert found.cause is Cause.HANG_WATCHDOG


@pytest.mark.field_case("C16")
def test_stream_that_stands_still_under_a_healthy_health_is_a_hang():
    health = "".join(
        f'[2026-11-15 04:07:{second:02d}] INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\n'
        for second in range(0, 50, 5)
    )
    client = "Starting main benchmark run...\n 12%|#  | 2/16 [00:00<00:05,  3.27it/s]"
    by_log = diagnose(READY + decode() + health, exit_code=-9, client_output=client)
    assert (by_log.cause, by_log.details["done"], by_log.details["total"]) == (Cause.HANG_NO_PROGRESS, 2, 16)
    assert by_log.details["stalled_s"] == 105.0
    by_deadline = diagnose(READY + decode(), exit_code=124, client_output=client)
    assert by_deadline.cause is Cause.HANG_NO_PROGRESS
    assert any("2/16" in line for line in by_deadline.evidence)


@pytest.mark.field_case("C17")
def test_long_silence_with_no_batch_after_it_is_a_hang():
    line = HEALTH.format(tic="05:49:14", beat="05:42:53")
    found = diagnose(READY + decode() + line)
    assert (found.cause, found.details["gap_s"], found.fatal) == (Cause.HANG_NO_PROGRESS, 381, True)
    assert line.strip() in found.evidence


@pytest.mark.field_case("C17")
def test_short_silence_followed_by_decode_lines_is_an_overload_warning():
    line = HEALTH.format(tic="05:43:14", beat="05:42:53")
    found = diagnose(READY + decode() + line + decode() * 3)
    assert (found.cause, found.warnings) == (Cause.NONE, (line.strip(),))


@pytest.mark.field_case("C17")
def test_silence_over_midnight_is_counted_forwards():
    assert heartbeat_gap_s(HEALTH.format(tic="00:00:11", beat="23:59:50")) == 21


def test_faults_after_shutdown_began_are_noise():
    noise = (
        READY
        + decode()
        + SIGTERM
        + died(OOM)
        + NCCL.format(rank=0)
        + "CUDA error: an illegal memory access was encountered\n"
    )
    assert diagnose(noise).cause is Cause.NONE
    assert diagnose(noise, exit_code=-9).cause is Cause.NONE
    assert diagnose(noise.replace(SIGTERM, "")).cause is Cause.GPU_OOM


def test_a_server_told_to_stop_under_a_running_client_is_named():
    found = diagnose(
        READY + decode() + SIGTERM, 1, "Starting main benchmark run...\nrequests.exceptions.ConnectionError: refused\n"
    )
    assert found.cause is Cause.SERVER_DIED
    assert SIGTERM.strip() in found.evidence


def test_ranks_that_interleave_inside_a_traceback_keep_their_own_faults():
    log = (
        READY + "[2026-11-15 04:06:30 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x/a.py", line 1, in run\n'
        "[2026-11-15 04:06:30 TP1] Decode batch, #running-req: 16, #token: 9, token usage: 0.05, gen throughput"
        " (token/s): 1.0\n"
        "    go()\n"
        f"{OOM}\n"
        "[2026-11-15 04:06:31 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x/b.py", line 1, in run\n    go()\n'
        "torch.distributed.DistBackendError: NCCL error, remote process exited\n"
    )
    found = diagnose(log)
    assert (found.cause, found.first_rank) == (Cause.GPU_OOM, "TP3")


def test_carriage_returns_of_progress_bars_end_lines_and_give_graph_sizes():
    bar = "\r".join(
        f"Capturing batches (bs={n} avail_mem=51.35 GB):  {n}%|#| {n}/12 [00:01<?, ?it/s]" for n in (32, 16, 8)
    )
    found = diagnose(READY + bar + "\r" + decode(n=64, graph=False) + died(OOM))
    assert found.details["graph_sizes"] == (8, 16, 32)


def test_text_that_a_user_sent_is_no_fault():
    log = READY + f"[2026-11-15 04:06:00] Receive: obj=GenerateReqInput(text='{OOM}')\n" + decode()
    assert diagnose(log).cause is Cause.NONE


def test_an_error_that_was_dealt_with_is_only_a_warning():
    line = "[2026-11-15 04:06:00] Autotuner: CUDA out of memory for tactic 5, skipping it"
    found = diagnose(READY + line + "\n" + decode())
    assert (found.cause, found.warnings) == (Cause.NONE, (line,))


@pytest.mark.field_case("C17")
def test_long_silence_that_ended_is_named_and_not_fatal():
    found = diagnose(READY + decode() + HEALTH.format(tic="05:49:14", beat="05:42:53") + decode())
    assert (found.cause, found.fatal, found.details["recovered"]) == (Cause.HANG_NO_PROGRESS, False, True)
