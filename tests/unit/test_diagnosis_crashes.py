"""Crashes, out-of-memory, start-up failures: each row of the field cases, from the smallest log that shows it."""

from __future__ import annotations

import pytest

from perfgate.diagnosis import Cause, across_starts, diagnose
from perfgate.diagnosis.sizes import indexer_logits_bytes

READY = "[2026-11-15 04:05:00] The server is fired up and ready to roll!\n"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 616.00 MiB. GPU 0 has a total capacity of"
    " 79.10 GiB of"
    " which 300.00 MiB is free."
)
DECODE = (
    "[2026-11-15 04:06:00 TP0] Decode batch, #running-req: {n}, #full token: 20480, full token usage: 0.05,"
    " #swa token: 4096,"
    " swa token usage: 0.16, cuda graph: {graph}, gen throughput (token/s): {speed}, #queue-req: 0\n"
)
SUGGESTIONS = (
    "Possible solutions:\n"
    "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set {flag} to a smaller value (e.g., 16)\n"
    "3. if it is an OOM problem, set --mem-fraction-static to a smaller value\n"
    "Open an issue on GitHub https://github.com/sgl-project/sglang/issues/new/choose \n"
)


def died(message: str, frames: str = '  File "x/scheduler.py", line 1, in run\n    go()\n', rank: str = " TP0") -> str:
    """A scheduler's last words, as SGLang logs them."""
    return (
        f"[2026-11-15 04:06:30{rank}] Scheduler hit an exception: Traceback (most recent call"
        f" last):\n{frames}{message}\n\n"
        "[2026-11-15 04:06:30] Received sigquit from a child process. It usually means the child failed.\n"
    )


def decode(n: int = 16, graph: bool = True, speed: float = 1400.0) -> str:
    return DECODE.format(n=n, graph=graph, speed=speed)


@pytest.mark.field_case("C01")
def test_out_of_memory_is_named_from_the_log_while_the_process_is_alive():
    found = diagnose(READY + decode() + OOM + "\n", exit_code=None)
    assert found.cause is Cause.GPU_OOM
    assert found.fatal
    assert found.bytes_asked == 616 << 20
    assert found.bytes_limit == round(79.10 * (1 << 30))
    assert OOM in found.evidence
    assert "LOWER --mem-fraction-static" in found.advice


@pytest.mark.field_case("C03")
@pytest.mark.parametrize("number", ["0.912", "0.934"])
def test_start_without_room_for_the_kv_cache_says_raise_and_quotes_the_number(number):
    message = (
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. Raise"
        f" --mem-fraction-static above {number} (minimum viable = 1 - available/pre = 0.9113). If using"
        f" speculative decoding,"
        " draft weights are now counted."
    )
    found = diagnose(died(message), exit_code=1)
    assert found.cause is Cause.STARTUP_KV_BUDGET
    assert "RAISE" in found.advice
    assert number in found.advice
    assert "lower" not in found.advice.lower()
    assert "draft" in found.advice
    assert found.details["mem_fraction_static"] == 0.88


TOO_LOW = (
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value:"
    " mem_fraction_static=0.84"
)
ARGUMENTS = (
    "[2026-11-15 04:00:00] server_args=ServerArgs(model_path='m', mem_fraction_static={}, cuda_graph_max_bs=32)\n"
)


@pytest.mark.field_case("C04")
def test_neighbouring_fractions_that_both_fail_leave_no_feasible_one():
    low = diagnose(ARGUMENTS.format(0.84) + died(TOO_LOW))
    high = diagnose(ARGUMENTS.format(0.85) + died(OOM))
    assert (low.cause, high.cause) == (Cause.STARTUP_KV_BUDGET, Cause.GPU_OOM)
    assert "RAISE" in low.advice
    assert "LOWER" in high.advice
    for pair in ((low, high), (high, low)):
        both = across_starts(pair)
        assert both.cause is pair[-1].cause
        assert "no feasible fraction" in both.advice.lower()
        assert "RAISE" not in both.advice


@pytest.mark.field_case("C04")
def test_fractions_far_apart_still_leave_one_to_try():
    low = diagnose(ARGUMENTS.format(0.6) + died(TOO_LOW.replace("0.84", "0.6")))
    high = diagnose(ARGUMENTS.format(0.9) + died(OOM))
    assert "no feasible" not in across_starts([low, high]).advice.lower()


@pytest.mark.field_case("C04")
def test_both_messages_in_one_log_do_not_send_the_reader_back_and_forth():
    log = ARGUMENTS.format(0.84) + died(TOO_LOW) + ARGUMENTS.format(0.85) + died(OOM)
    assert "no feasible fraction" in diagnose(log).advice.lower()


@pytest.mark.field_case("C05")
@pytest.mark.parametrize("flag", ["--cuda-graph-max-bs", "--cuda-graph-max-bs-decode"])
def test_empty_capture_message_takes_its_cause_from_the_nearest_earlier_traceback(flag):
    log = died(
        "AssertionError: tile of 48 heads is not instantiated\n\nDuring handling of the above exception,"
        " another exception"
        " occurred:\n\nTraceback (most recent call last):\n"
        '  File "x/decode_cuda_graph_runner.py", line 363, in __init__\n    self.capture()\n'
        "Exception: Capture cuda graph failed: \n" + SUGGESTIONS.format(flag=flag)
    )
    found = diagnose(log)
    assert found.cause is Cause.GRAPH_CAPTURE_FAILED
    assert found.reason == "AssertionError: tile of 48 heads is not instantiated"
    assert "tile of 48 heads" in found.advice
    assert not any("OOM" in line for line in found.evidence)
    assert "OOM" not in found.advice


@pytest.mark.field_case("C05")
def test_empty_capture_message_without_any_traceback_is_an_unknown_reason_and_no_oom():
    found = diagnose("Capture cuda graph failed: \n" + SUGGESTIONS.format(flag="--cuda-graph-max-bs"))
    assert (found.cause, found.reason) == (Cause.GRAPH_CAPTURE_FAILED, "unknown")


@pytest.mark.field_case("C05")
def test_capture_that_ran_out_of_memory_is_out_of_memory():
    found = diagnose(
        died(f"Exception: Capture cuda graph failed: {OOM[24:]}\n" + SUGGESTIONS.format(flag="--cuda-graph-max-bs"))
    )
    assert (found.cause, found.phase) == (Cause.GPU_OOM, "graph capture")
    assert "--cuda-graph-max-bs" in found.advice


@pytest.mark.field_case("C06")
def test_kernel_with_too_much_shared_memory_is_a_compile_failure_with_both_sizes():
    line = (
        "ptxas error   : Entry function '_Z22paged_mqa_logits_metadata' uses too much shared data (0xc980"
        " bytes, 0xc000 max)"
    )
    found = diagnose(READY + line + "\n" + died("RuntimeError: CUDA out of luck"))
    assert found.cause is Cause.JIT_COMPILE_FAILED
    assert (found.bytes_asked, found.bytes_limit) == (0xC980, 0xC000)
    assert line in found.evidence
    assert "51584" in found.advice
    assert "49152" in found.advice


@pytest.mark.field_case("C06")
def test_triton_tile_above_the_shared_memory_limit_is_no_gpu_oom():
    message = (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware"
        " limit: 101376."
        " Reducing block sizes or `num_stages` may help."
    )
    found = diagnose(READY + died(message))
    assert found.cause is Cause.JIT_COMPILE_FAILED
    assert (found.bytes_asked, found.bytes_limit) == (131072, 101376)


@pytest.mark.field_case("C07")
def test_missing_kernel_image_is_found_on_a_bare_line_between_ranks():
    line = "CUDA error (/build/get_mla_metadata.cu:93): no kernel image is available for execution on the device"
    log = (
        "[2025-12-01 10:00:00 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=9.10 GB\n"
        f"{line}\n"
        "[2025-12-01 10:00:00 TP1] Capture cuda graph begin. This can take up to several minutes. avail mem=9.10 GB\n"
    ) + died("RuntimeError: Rank 0 scheduler died")
    found = diagnose(log)
    assert found.cause is Cause.NO_KERNEL_IMAGE
    assert line in found.evidence
    assert found.first_rank is None


@pytest.mark.field_case("C08")
def test_death_at_the_first_long_prompt_names_the_prompt_length():
    log = READY + (
        "[2026-11-15 04:05:30 TP0] Prefill batch, #new-seq: 1, #new-token: 256, #cached-token: 0, full token"
        " usage: 0.00, swa token"
        " usage: 0.00, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput"
        " (token/s): 9.0\n"
        "[2026-11-15 04:05:40 TP0] Prefill batch, #new-seq: 1, #new-token: 32768, #cached-token: 0, full token"
        " usage: 0.00, swa"
        " token usage: 0.00, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input"
        " throughput (token/s): 9.0\n"
    )
    found = diagnose(log + died("RuntimeError: CUDA error: an illegal memory access was encountered"))
    assert found.cause is Cause.ILLEGAL_ACCESS
    assert found.details["last_prefill_tokens"] == 32768
    assert "32768" in found.advice


@pytest.mark.field_case("C09")
def test_asynchronous_fault_lists_the_first_cuda_error_and_blames_no_frame():
    first = "CUDA error: an illegal memory access was encountered (rank 3 allreduce)"
    log = (
        READY
        + f"[2026-11-15 04:06:00 TP3] {first}\n"
        + died(
            "RuntimeError: cuLaunchHostFunc failed with error 700",
            '  File "x/attention.py", line 7, in flash_attention_forward\n    kernel_x()\n',
            " TP1",
        )
    )
    found = diagnose(log)
    assert (found.cause, found.first_rank) == (Cause.ILLEGAL_ACCESS, "TP3")
    assert first in found.evidence[0]
    assert "asynchronous" in found.advice
    assert "kernel_x" not in found.advice
    assert "flash_attention_forward" not in found.advice
    assert found.details["frame_reliable"] is False


@pytest.mark.field_case("C18")
def test_pool_leak_at_idle_is_a_death_after_the_point_that_was_measured():
    leak = (
        "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=1000, evictable_size=2, total=2000"
    )
    found = diagnose(
        READY + decode() + died(leak),
        exit_code=1,
        client_output="ConnectionRefusedError: [Errno 111] Connection refused",
    )
    assert found.cause is Cause.SERVER_DIED
    assert leak in found.evidence
    assert "not run" in found.advice


@pytest.mark.field_case("C20")
@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-15 04:05:00] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1',"
        " 30000): address already in use",
        "OSError: [Errno 98] Address already in use",
        "ValueError: Port 30000 is already in use. Please choose another.",
    ],
)
def test_taken_port_is_named(line):
    found = diagnose(line + "\n", exit_code=1)
    assert found.cause is Cause.PORT_IN_USE
    assert "port" in found.advice


@pytest.mark.field_case("C21")
def test_missing_shard_is_the_machine_and_no_verdict_on_speed():
    log = "[2026-11-15 04:00:00 TP2] Load weight begin. avail mem=138.90 GB\n" + died(
        "OSError: shard model-00007-of-00046 vanished",
        '  File "x/model_runner.py", line 9, in load_model\n    a()\n  File "x/loader.py", line 3, in'
        " load_weights\n    b()\n",
        " TP2",
    )
    found = diagnose(log, exit_code=1)
    assert (found.cause, found.first_rank) == (Cause.WEIGHT_LOAD_FAILED, "TP2")
    assert "no verdict on speed" in found.advice
    assert any("vanished" in line for line in found.evidence)


@pytest.mark.field_case("C24")
@pytest.mark.parametrize(("context", "shown"), [(372_000, "1.42"), (800_000, "3.05")])
def test_size_of_the_indexer_logits_is_recognised_on_all_ranks_at_once(context, shown):
    assert f"{indexer_logits_bytes(4096, context) / 2**30:.2f}" == shown
    log = (
        "[2026-11-15 04:04:00 TP0] max_total_num_tokens=2394496, chunked_prefill_size=4096, max_prefill_tokens=16384,"
        " max_running_requests=256, context_len=1048576, available_gpu_mem=12.90 GB\n" + READY
    )
    log += (
        "[2026-11-15 04:06:29 TP0] Prefill batch, #new-seq: 1, #new-token: 4096, #cached-token: 0, full token"
        " usage: 0.02, swa token"
        f" usage: 0.07, #running-req: 0, #queue-req: 1, #pending-token: {context - 4096}, cuda graph: False,"
        f" input throughput"
        " (token/s): 18234.51\n"
    )
    for rank in range(8):
        log += died(OOM.replace("616.00 MiB", f"{shown} GiB"), rank=f" TP{rank}")
    found = diagnose(log)
    assert found.cause is Cause.GPU_OOM
    assert "indexer logits" in found.advice
    assert "--chunked-prefill-size" in found.advice
    assert found.details["ranks"] == tuple(f"TP{rank}" for rank in range(8))


@pytest.mark.field_case("C24")
def test_another_size_is_not_taken_for_the_indexer():
    log = (
        "[2026-11-15 04:04:00] max_total_num_tokens=1, chunked_prefill_size=4096, context_len=131072\n"
        + READY
        + died(OOM)
    )
    assert "indexer" not in diagnose(log).advice


@pytest.mark.field_case("C25")
def test_out_of_memory_while_loading_a_kernel_has_no_size_but_an_uptime():
    log = (
        "[2026-11-15 01:06:30] server_args=ServerArgs(model_path='m')\n"
        + READY
        + died("RuntimeError: Triton Error [CUDA]: out of memory")
    )
    found = diagnose(log)
    assert found.cause is Cause.GPU_OOM
    assert found.bytes_asked is None
    assert found.uptime_s == 3 * 3600
    assert "10800 s of uptime" in found.advice


@pytest.mark.field_case("C26")
def test_out_of_memory_far_above_a_crash_that_does_not_say_so_is_the_cause():
    crash = (
        'RuntimeError: torch_call_dispatcher( "aten::new_empty", "", stack.data()) API call failed at tensor.h, line 9'
    )
    found = diagnose(READY + OOM + "\n" + decode() * 300 + died(crash))
    assert found.cause is Cause.GPU_OOM
    assert OOM in found.evidence


@pytest.mark.field_case("C27")
def test_retraction_with_a_full_pool_is_named_and_nothing_died():
    line = (
        "[2026-11-15 04:06:10 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1,"
        " #new_tokens_gained: 2048,"
        " #new_token_ratio: 0.6200 -> 0.9700"
    )
    found = diagnose(READY + decode(speed=429.0) + line + "\n" + decode(speed=21.0) * 9)
    assert (found.cause, found.fatal) == (Cause.KV_POOL_EXHAUSTED, False)
    assert found.evidence == (line,)


def test_missing_c64_row_of_the_campaign_names_both_settings():
    log = (
        "[2026-07-20 04:00:00 TP0] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1,"
        " bs=[1, 2, 4, 8, 16, 24, 32], avail mem=9.38 GB\n"
        "[2026-07-20 04:00:20 TP0] Capture target decode CUDA graph end. elapsed=12.31 s, mem usage=1.10 GB,"
        " avail mem=8.1 GB.\n"
    ) + READY
    log += decode(n=64, graph=False, speed=29.0) + died(OOM)
    found = diagnose(log)
    assert found.cause is Cause.GPU_OOM
    assert "--cuda-graph-max-bs" in found.advice
    assert "--mem-fraction-static" in found.advice
    assert (found.details["largest_graph"], found.details["concurrency"]) == (32, 64)
    assert found.details["graph_sizes"] == (1, 2, 4, 8, 16, 24, 32)
    by_client = diagnose(
        log.replace("#running-req: 64", "#running-req: 9"), client_output="benchmark_args=Namespace(max_concurrency=64)"
    )
    assert by_client.details["concurrency"] == 64


def test_eager_batch_within_the_captured_graphs_is_not_blamed_on_their_size():
    log = "[2026-07-20 04:00:00] server_args=ServerArgs(cuda_graph_max_bs=32)\n" + READY
    found = diagnose(log + decode(n=32, graph=False) + died(OOM))
    assert "largest_graph" not in found.details
    assert "Raise" not in found.advice


def test_first_of_two_faults_by_position_is_the_cause_whichever_is_worse():
    access = "CUDA error: an illegal memory access was encountered\n"
    assert diagnose(READY + access + died(OOM)).cause is Cause.ILLEGAL_ACCESS
    assert diagnose(READY + died(OOM) + access).cause is Cause.GPU_OOM
