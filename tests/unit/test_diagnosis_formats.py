"""Every failure line of the format tables, in each spelling, by itself in a log."""

from __future__ import annotations

import pytest
from test_diagnosis_crashes import READY, decode, died

from perfgate.diagnosis import Cause, diagnose

STAMP = "[2026-11-15 04:06:30 TP0] "
LINES = [
    (Cause.SERVER_DIED, STAMP + "Scheduler hit an exception: Traceback (most recent call last):\nValueError: x"),
    (Cause.SERVER_DIED, STAMP + "TokenizerManager hit an exception: Traceback (most recent call last):\nValueError: x"),
    (
        Cause.SERVER_DIED,
        STAMP + "DetokenizerManager hit an exception: Traceback (most recent call last):\nValueError: x",
    ),
    (
        Cause.SERVER_DIED,
        STAMP + "DataParallelController hit an exception: Traceback (most recent call last):\nValueError: x",
    ),
    (
        Cause.SERVER_DIED,
        STAMP + "TpModelWorkerClient hit an exception: Traceback (most recent call last):\nValueError: x",
    ),
    (Cause.SERVER_DIED, STAMP + "Received sigquit from a child process. It usually means the child failed."),
    (Cause.SERVER_DIED, STAMP + "Received sigquit from a child proces. It usually means the child failed."),
    (Cause.SERVER_DIED, STAMP + "SIGQUIT received. signum=3, frame=<frame>. It usually means one child failed."),
    (
        Cause.SERVER_DIED,
        STAMP + "Subprocess scheduler_0 (pid=123) crashed with exit code -6. Triggering SIGQUIT for cleanup...",
    ),
    (Cause.HANG_WATCHDOG, STAMP + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
    (Cause.HANG_WATCHDOG, STAMP + "Watchdog timeout (self.watchdog_timeout=300)"),
    (
        Cause.GPU_OOM,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 616.00 MiB. GPU 0 has a total capacity of 1 GiB",
    ),
    (Cause.GPU_OOM, "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 616.00 MiB"),
    (Cause.GPU_OOM, "RuntimeError: Triton Error [CUDA]: out of memory"),
    (Cause.GPU_OOM, "torch.AcceleratorError: CUDA error: out of memory"),
    (Cause.STARTUP_KV_BUDGET, "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."),
    (
        Cause.STARTUP_KV_BUDGET,
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88. Raise it",
    ),
    (Cause.KV_POOL_EXHAUSTED, STAMP + "Prefill out of memory. Try to lower your batch size."),
    (Cause.KV_POOL_EXHAUSTED, STAMP + "Decode out of memory. Try to lower your batch size."),
    (
        Cause.KV_POOL_EXHAUSTED,
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.",
    ),
    (
        Cause.KV_POOL_EXHAUSTED,
        "Out of memory even after retracting all other requests in the decode batch. Aborting the last request.",
    ),
    (Cause.GRAPH_CAPTURE_FAILED, "Exception: Capture cuda graph failed: stream is capturing\nPossible solutions:"),
    (Cause.GRAPH_CAPTURE_FAILED, "Exception: Capture cpu graph failed: x\nPossible solutions:"),
    (Cause.SERVER_DIED, "ValueError: req_to_token_pool memory leak detected!available_size=1, total_size=2"),
    (Cause.SERVER_DIED, "ValueError: token_to_kv_pool memory leak detected! x"),
    (Cause.SERVER_DIED, "ValueError: KV cache pool leak detected! x"),
    (
        Cause.HANG_NO_PROGRESS,
        STAMP
        + "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time:"
        " 05:49:14. last_heartbeat time: 05:42:53",
    ),
    (
        Cause.SERVER_DIED,
        STAMP + "Initialization failed. warmup error: Traceback (most recent call last):\nAssertionError: res",
    ),
    (
        Cause.NCCL_TIMEOUT,
        "[rank0]:[E1 02:06:33 ProcessGroupNCCL.cpp:1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1,"
        " OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600003 milliseconds before timing out.",
    ),
    (Cause.ILLEGAL_ACCESS, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    (Cause.ILLEGAL_ACCESS, "RuntimeError: CUDA error: device-side assert triggered"),
    (Cause.ILLEGAL_ACCESS, "RuntimeError: CUDA error: misaligned address"),
    (Cause.NO_KERNEL_IMAGE, "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (
        Cause.PORT_IN_USE,
        "[2026-11-15 04:06:30] ERROR:    [Errno 98] error while attempting to bind: address already in use",
    ),
    (Cause.JIT_COMPILE_FAILED, "ninja: build stopped: subcommand failed."),
    (Cause.JIT_COMPILE_FAILED, "ptxas fatal   : Value 'sm_120a' is not defined for option 'gpu-name'"),
    (Cause.JIT_COMPILE_FAILED, "nvcc fatal   : Unsupported gpu architecture 'compute_120'"),
    (Cause.JIT_COMPILE_FAILED, "triton.compiler.errors.CompilationError: at 12:4:"),
    (Cause.JIT_COMPILE_FAILED, "RuntimeError: Error building extension 'marlin'"),
    (Cause.WEIGHT_LOAD_FAILED, "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
    (Cause.WEIGHT_LOAD_FAILED, "RuntimeError: Cannot find any model weights with `m`"),
    (Cause.WEIGHT_LOAD_FAILED, 'FileNotFoundError: No such file or directory: "/m/model-00007-of-00046.safetensors"'),
    (
        Cause.UNSUPPORTED_MODEL,
        "ValueError: Model architectures ['DeepseekV5ForCausalLM'] are not supported for now. Supported"
        " architectures: dict_keys()",
    ),
    (
        Cause.UNSUPPORTED_MODEL,
        "ValueError: The checkpoint you are trying to load has model type `deepseek_v4` but Transformers does"
        " not recognize this"
        " architecture.",
    ),
    (Cause.UNSUPPORTED_MODEL, "KeyError: 'deepseek_v4'"),
]


@pytest.mark.parametrize(
    ("cause", "line"), LINES, ids=lambda value: value.name if isinstance(value, Cause) else value[:40]
)
def test_failure_line_is_recognised_and_quoted(cause, line):
    found = diagnose(READY + decode() + line + "\n")
    assert found.cause is cause
    assert found.fatal
    assert found.advice
    assert any(quoted in line for quoted in found.evidence)
    assert all(quoted in READY + decode() + line for quoted in found.evidence)


HARMLESS = [
    "[2026-11-15 04:06:30 TP0] KV cache pool usage is fine",
    "[2026-11-15 04:06:30] Endpoint '/get_server_info' is deprecated and will be removed. Please use"
    " '/server_info' instead.",
    "[2026-11-15 04:06:30] Entering DeepGEMM JIT Pre-Compile session. It may take a long time (typically 10-20 mins)",
    "[2026-11-15 04:06:30] Ignore import error when loading sglang.srt.models.qwen3_5: No module named 'vllm'",
    "[2026-11-15 04:06:30] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit",
    "[2026-11-15 04:06:30] Breakable CUDA graph is incompatible with DeepSeek-V4 (heavy capture-pool memory pressure)",
    "[2026-11-15 04:06:30] Failed to load generation config for m: m does not appear to have a file named"
    " generation_config.json.",
    "resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown",
    "3. if it is an OOM problem, set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)",
    "[2026-11-15 04:06:30] kill_process_tree called: parent_pid=2825, include_parent=False, pid=2825",
    "[2026-11-15 04:06:30] Testing retraction. #retracted_reqs: 1",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_line_is_no_fault(line):
    assert diagnose(READY + decode() + line + "\n" + decode()).cause is Cause.NONE


@pytest.mark.parametrize(
    "line",
    [
        "[2025-01-15 04:06:30 TP0] Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.62 -> 0.97",
        "[2026-11-15 04:06:30 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1,"
        " #new_tokens_gained: 2048",
        "[2026-11-15 04:06:30 TP0] The request queue is full.",
    ],
)
def test_requests_put_back_or_refused_stopped_nothing_but_are_named(line):
    found = diagnose(READY + decode() + line + "\n" + decode())
    assert (found.cause, found.fatal) == (Cause.KV_POOL_EXHAUSTED, False)


def test_pool_exhaustion_gives_wanted_and_available_tokens():
    log = (
        READY + "[2026-11-15 04:06:30 TP1] Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192"
        " tokens.\n"
        "Available full tokens: 512 (full_available_size=256 + full_evictable_size=256)\nAvailable swa tokens: 90 (x)\n"
    ) + died("RuntimeError: Prefill out of memory. Try to lower your batch size.")
    found = diagnose(log)
    assert (found.cause, found.first_rank) == (Cause.KV_POOL_EXHAUSTED, "TP1")
    assert (found.wanted_tokens, found.available_tokens) == (8192, 512)
    assert "8192" in found.advice
    assert "512" in found.advice
    assert any("Available full tokens: 512" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("prefix", "rank"),
    [
        ("[2026-11-15 04:06:30 TP3] ", "TP3"),
        ("[2026-11-15 04:06:30.123 TP3] ", "TP3"),
        ("[2026-11-15 04:06:30 DP1 PP0 TP3 EP2] ", "DP1 PP0 TP3 EP2"),
        ("(Scheduler pid=123, ip=10.0.0.2) [2026-11-15 04:06:30 TP3] ", "TP3"),
        ("[2026-11-15 04:06:30] ", None),
        ("[rank5]: ", "rank5"),
        ("", None),
    ],
)
def test_rank_is_read_from_every_prefix(prefix, rank):
    found = diagnose(READY + prefix + "CUDA error: an illegal memory access was encountered\n")
    assert (found.cause, found.first_rank) == (Cause.ILLEGAL_ACCESS, rank)


@pytest.mark.parametrize(("code", "words"), [(-9, "SIGKILL"), (137, "SIGKILL"), (-11, "SIGSEGV"), (-6, "SIGABRT")])
def test_silent_death_says_what_the_exit_code_tells(code, words):
    by_exit = diagnose(READY + decode(), exit_code=code)
    assert by_exit.cause is Cause.SERVER_DIED
    assert words in by_exit.advice
    assert by_exit.evidence
    if code < 0:
        line = (
            f"{STAMP}Subprocess scheduler_0 (pid=123) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
        )
        by_line = diagnose(READY + decode() + line + "\n")
        assert by_line.cause is Cause.SERVER_DIED
        assert words in by_line.advice


def test_host_memory_is_not_taken_for_gpu_memory():
    found = diagnose(
        died(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: can't allocate"
            " memory: 9 bytes"
        )
    )
    assert found.cause is Cause.SERVER_DIED
    assert "not the GPU" in found.advice


def test_an_exit_that_nothing_explains_is_unknown_and_never_none():
    assert diagnose("", exit_code=1).cause is Cause.UNKNOWN
    assert diagnose("hello\n", exit_code=2).cause is Cause.UNKNOWN
    assert diagnose(READY, exit_code=1).cause is Cause.SERVER_DIED
    assert diagnose("", exit_code=0).cause is Cause.NONE
