"""The client's side: what it printed, its exit code, and whose fault that was."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_diagnosis_crashes import OOM, READY, decode, died

from perfgate.diagnosis import Cause, diagnose

DATA = Path(__file__).parent.parent / "data"
MEASURED = "Starting warmup with 1 sequences...\nWarmup completed with 1 sequences. Starting main benchmark run...\n"


def sample(name: str) -> str:
    return (DATA / name).read_bytes().decode()


@pytest.mark.field_case("C22")
@pytest.mark.parametrize(
    "last",
    [
        "KeyError: 'deepseek_v4'",
        "AttributeError: 'PreTrainedConfig' object has no attribute 'max_position_embeddings'",
        "ValueError: The checkpoint has model type `deepseek_v4` but Transformers does not recognize this"
        " architecture.",
        "OSError: m is not a local folder and is not a valid model identifier",
    ],
)
def test_client_that_cannot_load_the_tokenizer_is_named_before_anything_else(last):
    output = (
        "Server ready in 0.0s.\nTraceback (most recent call last):\n"
        '  File "x/transformers/models/auto/tokenization_auto.py", line 1, in from_pretrained\n    a()\n'
        f"{last}\n"
    )
    found = diagnose(READY, exit_code=1, client_output=output)
    assert found.cause is Cause.CLIENT_TOKENIZER
    assert found.evidence == (last,)
    assert "Never substitute" in found.advice


@pytest.mark.field_case("C22")
def test_another_tokenizer_in_its_place_is_a_tokenizer_failure_even_with_a_table():
    output = "Could not load tokenizer, falling back to gpt2\n" + MEASURED + "==== Serving Benchmark Result ====\n"
    assert diagnose(READY, exit_code=0, client_output=output).cause is Cause.CLIENT_TOKENIZER


def test_a_chat_template_warning_of_a_run_that_went_on_is_no_tokenizer_failure():
    output = "Fail to load tokenizer config with error=x\n" + MEASURED + "==== Serving Benchmark Result ====\n"
    assert diagnose(READY + decode(), exit_code=0, client_output=output).cause is Cause.NONE


@pytest.mark.field_case("C23")
@pytest.mark.parametrize("table", ["", "============ Serving Benchmark Result ============\n"])
def test_client_that_died_over_server_info_failed_after_the_measured_phase(table):
    output = (
        MEASURED + "100%|##| 16/16 [00:00<00:00,  3.27it/s]\n" + table + "Traceback (most recent call last):\n"
        '  File "x/serving.py", line 1514, in benchmark\n    requests.get(base_url + "/server_info")\n'
        "requests.exceptions.ConnectionError: ('Connection aborted.', RemoteDisconnected('Remote end closed"
        " connection'))\n"
    )
    found = diagnose(READY + decode(), exit_code=1, client_output=output)
    assert found.cause is Cause.CLIENT_FAILED
    assert "after the measured phase" in found.advice


@pytest.mark.field_case("B04")
def test_all_requests_failed_is_said_instead_of_the_client_s_index_error():
    log = READY + '[2026-11-15 04:06:00] INFO:     127.0.0.1:4 - "POST /generate HTTP/1.1" 500 Internal Server Error\n'
    output = (
        MEASURED + 'Traceback (most recent call last):\n  File "x/serving.py", line 1, in calculate_metrics\n    p()\n'
        "IndexError: index -1 is out of bounds for axis 0 with size 0\n"
    )
    found = diagnose(log, exit_code=1, client_output=output)
    assert found.cause is Cause.CLIENT_FAILED
    assert "All requests failed" in found.advice
    assert "500" in found.evidence[0]


@pytest.mark.field_case("B05")
def test_server_that_died_mid_run_is_named_even_when_its_log_just_ends():
    output = (
        MEASURED
        + "output.error='Traceback ... aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected'\n"
        'Traceback (most recent call last):\n  File "x/serving.py", line 1, in benchmark\n    get()\n'
        "requests.exceptions.ConnectionError: HTTPConnectionPool: Max retries exceeded ([Errno 111] Connection"
        " refused)\n"
    )
    found = diagnose(READY + decode(), exit_code=1, client_output=output)
    assert found.cause is Cause.SERVER_DIED
    assert any("Connection refused" in line for line in found.evidence)
    assert diagnose(READY + died(OOM), exit_code=1, client_output=output).cause is Cause.GPU_OOM


def test_nobody_listening_is_a_client_that_never_began():
    found = diagnose("", exit_code=1, client_output="Server did not become ready within 3s timeout.\n")
    assert found.cause is Cause.CLIENT_FAILED
    assert "Nothing answered" in found.advice


@pytest.mark.field_case("C19")
@pytest.mark.parametrize(
    "lines", [0, 97, 98], ids=["the output alone", "with the log", "with the log after the compiling"]
)
@pytest.mark.parametrize("code", [None, -9, -15, 137])
def test_client_stopped_while_the_server_compiled_is_a_stopped_client(code, lines):
    """The log is that server's: up to the third request at 16:47:16, and to its batch after 51 s of compiling."""
    log = "\n".join(sample("h200_v4mini_jit_in_window.server.log").split("\n")[:lines])
    found = diagnose(log, exit_code=code, client_output=sample("h200_v4mini_c1_killed_while_compiling.client.txt"))
    assert found.cause is Cause.CLIENT_FAILED
    assert (found.details["done"], found.details["total"]) == (2, 4)
    assert "compiling" in found.advice
    assert any("2/4" in line for line in found.evidence)


@pytest.mark.field_case("C19")
def test_deepgemm_compiling_since_the_last_batch_is_no_hang():
    log = (
        READY
        + decode()
        + "[2026-11-15 04:06:01 TP0] Entering DeepGEMM JIT Pre-Compile session. It may take a long time\n"
    )
    found = diagnose(log, exit_code=124, client_output=MEASURED + " 10%|#  | 1/10 [00:00<00:00,  3.27it/s]")
    assert (found.cause, found.details["compiling"]) == (Cause.CLIENT_FAILED, True)
    assert "JIT" in found.evidence[0]


def test_start_that_never_became_ready_is_a_hang_at_its_deadline():
    log = "[2026-11-15 04:00:00] Load weight begin. avail mem=138.90 GB\n"
    found = diagnose(log, exit_code=124)
    assert (found.cause, found.phase) == (Cause.HANG_NO_PROGRESS, "weights")


def test_real_graph_capture_that_died_of_the_moe_layout():
    found = diagnose(sample("h200_v4mini_dies_in_graph_capture.server.log"), exit_code=1)
    assert found.cause is Cause.GRAPH_CAPTURE_FAILED
    assert found.reason == "AssertionError: Hidden size mismatch"
    assert "AssertionError: Hidden size mismatch" in found.evidence
    assert any("fused_moe.py" in line for line in found.evidence)
    assert "--moe-runner-backend" in found.advice
    assert "OOM" not in found.advice
    assert found.uptime_s == 155.0


def test_real_healthy_run_that_was_shut_down_has_no_cause():
    found = diagnose(sample("cpu_tiny_llama.server.log"), exit_code=0)
    assert (found.cause, found.evidence, found.fatal) == (Cause.NONE, (), False)


PLUGIN_TRACE = 'Traceback (most recent call last):\n  File "x/sglang_plugin.py", line 3, in register\n    go()\n'


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Failed to load plugin dsv4_kernels from group sglang.srt.plugins", "dsv4_kernels"),
        ("Failed to execute general plugin: dsv4_kernels", "dsv4_kernels"),
        ("Failed to apply hooks to deep_gemm.fp8_paged_mqa_logits", "deep_gemm.fp8_paged_mqa_logits"),
    ],
)
def test_a_server_that_came_up_without_its_patch_is_unknown_and_says_unpatched(line, name):
    head = f"[2026-11-15 04:00:00] {line}"
    reason = "AttributeError: module has no attribute 'fp8_paged_mqa_logits'"
    log = f"{head}\n{PLUGIN_TRACE}{reason}\n" + READY + decode()
    found = diagnose(log)
    assert (found.cause, found.fatal, found.reason) == (Cause.UNKNOWN, True, reason)
    assert head in found.evidence
    assert reason in found.evidence
    assert name in found.advice
    assert "unpatched" in found.advice
    worse = diagnose(log + died(OOM))
    assert worse.cause is Cause.GPU_OOM
    assert head in worse.evidence
    assert "unpatched" in worse.advice


def test_an_exception_that_sglang_caught_in_a_plugin_is_no_death_by_that_exception():
    log = (
        f"[2026-11-15 04:00:00] Failed to execute general plugin: p\n{PLUGIN_TRACE}RuntimeError: CUDA error:"
        f" no kernel image is available\n"
    )
    assert diagnose(log + READY + decode()).cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    "sigquit", ["", "[2026-11-15 04:00:02] Received sigquit from a child process. It usually means x\n"]
)
def test_plugin_that_stops_the_server_on_purpose_is_named(sigquit):
    log = (
        "[2026-11-15 04:00:00] Available plugins for group sglang.srt.plugins:\n"
        "[2026-11-15 04:00:00]   - dsv4_kernels -> dsv4_kernels.sglang_plugin:register\n"
        "[2026-11-15 04:00:00] Loaded plugin dsv4_kernels from group sglang.srt.plugins\n"
        "dsv4_kernels: the V4.1 cache layout is interleaved, refusing to patch\n"
    ) + sigquit
    found = diagnose(log, exit_code=1)
    assert found.cause is Cause.SERVER_DIED
    assert "dsv4_kernels" in found.advice
    assert "SystemExit" in found.advice
    assert any("refusing to patch" in line for line in found.evidence)
