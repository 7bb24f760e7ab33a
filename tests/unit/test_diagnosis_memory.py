"""Out of memory while serving: what the advice names, by the concurrency asked for, the captured graphs and the traceback."""

from __future__ import annotations

import pytest

from perfgate.diagnosis import Cause, Diagnosis, diagnose

V4 = "[2026-11-30 17:18:40] Use dsv4 attention backend for DeepseekV4ForCausalLM, setting page_size to 256.\n"
CAPTURE = (
    "[2026-11-30 17:18:42] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1,"
    " bs=[1, 2, 4, 8, 12, 16, 24, 32], avail mem=4.39 GB"
)
READY = "[2026-11-30 17:18:54] The server is fired up and ready to roll!\n"
STEP = (
    "[2026-11-30 17:19:20] Prefill batch, #new-seq: {seqs}, #new-token: {new}, #cached-token: 0, full token usage: 0.00,"
    " swa token usage: 0.00, #running-req: 0, #queue-req: 0, #pending-token: {pending}, cuda graph: False,"
    " input throughput (token/s): 54.28\n"
)
SIZES = (
    "[2026-11-30 17:18:54] max_total_num_tokens=107827200, chunked_prefill_size={chunk}, max_prefill_tokens=16384,"
    " max_running_requests={running}, context_len={context}, available_gpu_mem=3.13 GB\n"
)
MODEL = '  File "$SITE/sglang/srt/models/deepseek_v4.py", line {}, in {}\n    {}\n'
PREFILL = '  File "$SITE/sglang/srt/model_executor/runner/eager_runner.py", line 208, in _execute_extend\n    go()\n'
DECODE = '  File "$SITE/sglang/srt/model_executor/runner/eager_runner.py", line 206, in _execute_decode\n    go()\n'
INDEXER = MODEL.format(930, "_forward_prepare", "self.indexer(") + (
    '  File "$SITE/sglang/srt/layers/attention/dsv4/indexer.py", line 205, in fp8_paged_mqa_logits_torch_sm120\n'
    "    score = torch.bmm(kv_value, q.transpose(1, 2))\n"
)
HC_PRE = MODEL.format(1215, "hc_pre_torch_impl", "x_flat = x.flatten(1).float()")
MOE = MODEL.format(1559, "forward", "hidden_states = self.mlp(") + (
    '  File "$SITE/sglang/srt/layers/moe/moe_runner/triton.py", line 300, in run\n    cache = torch.empty(\n'
)
LONG_CHUNK = STEP.format(seqs=1, new=4096, pending=372_000 - 4096)
GRAPHS, FRACTION, CHUNK = "--cuda-graph-max-bs", "--mem-fraction-static", "--chunked-prefill-size"


def oom(
    frames: str,
    asked: str,
    step: str = STEP.format(seqs=1, new=256, pending=0),
    *,
    arguments: str = "",
    chunk: int = 16384,
    context: int = 65536,
    running: int = 64,
) -> str:
    """The log of a server whose largest graph is of 32 requests and that ran out of memory in ``frames``."""
    sizes = SIZES.format(chunk=chunk, context=context, running=running)
    return (
        f"{V4}{arguments}{CAPTURE}\n{sizes}{READY}{step}"
        "[2026-11-30 17:19:30] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "$SITE/sglang/srt/managers/scheduler.py", line 4310, in run_scheduler_process\n'
        f"    scheduler.run_event_loop()\n{frames}"
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of"
        " 139.80 GiB of which 412.38 MiB is free.\n\n"
        "[2026-11-30 17:19:31] SIGQUIT received. signum=None, frame=None. It usually means one child failed.\n"
    )


# 64 prompts of 256 tokens, of which 63 in one step; SGLang 0.5.15 logs a prefill step when it is done, 0.4 when it starts.
STARTED = STEP.format(seqs=63, new=16128, pending=0)
PLACES = [
    pytest.param(HC_PRE, "1024.00 MiB", id="hc_pre: 64 KiB a token, as the logits of a context of 64K"),
    pytest.param(HC_PRE, "1008.00 MiB", id="hc_pre of 63 prompts"),
    pytest.param(MOE, "768.00 MiB", id="MoE: 48 KiB a token"),
    pytest.param(INDEXER, "504.00 MiB", id="the indexer: no logits, but the keys of one page in fp32"),
]


def graph_advice(found: Diagnosis) -> bool:
    return "largest_graph" in found.details or f"Raise {GRAPHS}" in found.advice


@pytest.mark.parametrize("logged", [STEP.format(seqs=1, new=256, pending=0), STARTED], ids=["0.5.15", "0.4"])
@pytest.mark.parametrize(("frames", "asked"), PLACES)
def test_prefill_of_a_concurrency_above_the_graphs_names_both_settings_wherever_it_ran_out(frames, asked, logged):
    found = diagnose(oom(PREFILL + frames, asked, logged), exit_code=-9, concurrency=64)
    assert (found.cause, found.phase) == (Cause.GPU_OOM, "serving")
    assert (found.details["largest_graph"], found.details["concurrency"]) == (32, 64)
    assert f"Raise {GRAPHS}" in found.advice
    assert f"lower {FRACTION}" in found.advice
    assert CHUNK in found.advice
    assert "decode fell back" not in found.advice
    assert found.evidence[0] == CAPTURE
    assert any("OutOfMemoryError" in line for line in found.evidence)


@pytest.mark.parametrize("logged", [STEP.format(seqs=1, new=256, pending=0), STARTED], ids=["0.5.15", "0.4"])
@pytest.mark.parametrize(("frames", "asked"), PLACES)
def test_prefill_of_short_prompts_is_never_said_to_hold_the_indexer_logits_of_a_long_context(frames, asked, logged):
    found = diagnose(oom(PREFILL + frames, asked, logged), exit_code=-9)
    assert "indexer logits" not in found.advice
    assert ("in the indexer" in found.advice) == (frames is INDEXER)
    assert FRACTION in found.advice
    assert CHUNK in found.advice


@pytest.mark.parametrize("captured", [1, 16, 32])
@pytest.mark.parametrize(("frames", "asked"), PLACES)
def test_a_concurrency_that_is_captured_gets_no_advice_on_graphs(frames, asked, captured):
    found = diagnose(oom(PREFILL + frames, asked), exit_code=-9, concurrency=captured)
    assert found.cause is Cause.GPU_OOM
    assert not graph_advice(found)
    assert FRACTION in found.advice


@pytest.mark.parametrize(
    "limits",
    [
        {"running": 32},
        {"arguments": "[2026-11-30 17:18:39] server_args=ServerArgs(model_path='m', dp_size=4, tp_size=4)\n"},
    ],
    ids=["the rest wait in the queue", "16 on each of four ranks"],
)
def test_requests_that_no_rank_runs_at_once_are_not_held_against_the_graphs(limits):
    assert not graph_advice(diagnose(oom(PREFILL + HC_PRE, "1.00 GiB", **limits), exit_code=-9, concurrency=64))


def test_graphs_that_were_switched_off_are_not_to_be_made_larger():
    off = "[2026-11-30 17:18:39] server_args=ServerArgs(disable_cuda_graph=True, cuda_graph_max_bs_decode=32)\n"
    log = oom(PREFILL + HC_PRE, "1.00 GiB", arguments=off).replace(CAPTURE + "\n", "")
    assert not graph_advice(diagnose(log, exit_code=-9, concurrency=64))


def test_the_plans_concurrency_goes_before_what_the_client_printed():
    log, printed = oom(PREFILL + HC_PRE, "1.00 GiB"), "benchmark_args=Namespace(max_concurrency=64)\n"
    assert diagnose(log, 1, printed).details["concurrency"] == 64
    assert not graph_advice(diagnose(log, 1, printed, concurrency=16))


@pytest.mark.field_case("C24")
@pytest.mark.parametrize(("asked", "context"), [("1.42 GiB", 372_000), ("768.00 MiB", 196_608)])
def test_the_indexers_own_frame_says_how_long_the_context_was_in_mid_prompt_too(asked, context):
    log = oom(PREFILL + INDEXER, asked, LONG_CHUNK, chunk=4096, context=1_048_576)
    found = diagnose(log, exit_code=-9, concurrency=1)
    assert "indexer logits" in found.advice
    assert found.details["indexer_context"] == pytest.approx(context, rel=0.01)
    above = diagnose(log, exit_code=-9, concurrency=64).advice
    assert "indexer logits" in above
    assert f"Raise {GRAPHS}" in above


@pytest.mark.field_case("C24")
def test_a_traceback_into_another_part_of_the_model_rules_the_indexer_out_whatever_the_size():
    log = oom(PREFILL + HC_PRE, "1.42 GiB", LONG_CHUNK, chunk=4096, context=1_048_576)
    assert "indexer" not in diagnose(log, exit_code=-9).advice


@pytest.mark.field_case("C24")
def test_without_frames_a_size_that_other_buffers_have_too_is_not_the_indexers():
    long = STEP.format(seqs=1, new=16384, pending=65536 - 16384)
    assert "indexer" not in diagnose(oom("", "1.00 GiB", long), exit_code=-9).advice


def test_an_eager_decode_step_that_ran_out_in_the_indexer_is_no_matter_of_prefill_chunks():
    found = diagnose(oom(DECODE + INDEXER, "1.34 GiB", context=1_048_576), exit_code=-9, concurrency=64)
    assert "decode fell back to eager mode" in found.advice
    assert CHUNK not in found.advice


def test_a_capture_that_ran_out_in_the_indexer_is_no_matter_of_prefill_chunks():
    capture = (
        '  File "$SITE/sglang/srt/model_executor/runner/decode_cuda_graph_runner.py", line 698, in capture\n    go()\n'
    )
    found = diagnose(oom(capture + INDEXER, "1.34 GiB", step="").replace(READY, ""), exit_code=1)
    assert (found.cause, found.phase) == (Cause.GPU_OOM, "graph capture")
    assert GRAPHS in found.advice
    assert CHUNK not in found.advice


def test_prefill_steps_logged_after_the_fault_say_nothing_of_it():
    log = READY + STEP.format(seqs=1, new=256, pending=0)
    fault = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert diagnose(log + fault + LONG_CHUNK).details["last_prefill_tokens"] == 256
    late = oom("", "1.42 GiB", chunk=4096, context=1_048_576) + LONG_CHUNK
    assert "indexer" not in diagnose(late).advice
