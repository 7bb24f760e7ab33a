"""What a real log has between its batches: start-up facts, failures, progress bars, ranks that write at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.serverlog import EventKind, ServerLogError, between, parse

T = "[2026-11-15 04:01:51 TP0] "
DECODE = (
    "Decode batch, #running-req: 2, #token: 3698, token usage: 0.16, cuda graph: True, "
    "gen throughput (token/s): 50.46, #queue-req: 5"
)
FAILURES = {
    "Scheduler hit an exception: Traceback (most recent call last):": EventKind.EXCEPTION,
    "TpModelWorkerClient hit an exception: Traceback (most recent call last):": EventKind.EXCEPTION,
    "Received sigquit from a child process. It usually means the child failed.": EventKind.CHILD_DIED,
    "Received sigquit from a child proces. It usually means the child failed.": EventKind.CHILD_DIED,
    "SIGQUIT received. signum=3, frame=<f>. It usually means one child failed.": EventKind.CHILD_DIED,
    "Subprocess scheduler_0 (pid=123) crashed with exit code -6. Triggering SIGQUIT": EventKind.CHILD_DIED,
    "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)": EventKind.WATCHDOG,
    "Watchdog timeout (self.watchdog_timeout=300)": EventKind.WATCHDOG,
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 616.00 MiB.": EventKind.GPU_OOM,
    "RuntimeError: Triton Error [CUDA]: out of memory": EventKind.GPU_OOM,
    "Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.8": EventKind.KV_BUDGET,
    "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.88.": EventKind.KV_BUDGET,
    "Prefill out of memory. Try to lower your batch size.": EventKind.KV_EXHAUSTED,
    "Decode out of memory. Try to lower your batch size.": EventKind.KV_EXHAUSTED,
    "alloc_req_slots runs out of memory. Please set a smaller number": EventKind.KV_EXHAUSTED,
    "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.62 -> 0.97": EventKind.RETRACTION,
    "Decode out of memory happened. #retracted_reqs: 1, #new_token_ratio: 0.62 -> 0.97": EventKind.RETRACTION,
    "Out of memory even after retracting all other requests in the decode batch.": EventKind.REQUEST_ABORTED,
    "The request queue is full.": EventKind.REQUEST_ABORTED,
    "[http_server] Error: bad": EventKind.REQUEST_ERROR,
    "Exception: Capture cuda graph failed: ": EventKind.GRAPH_FAILED,
    "token_to_kv_pool_allocator memory leak detected! available": EventKind.LEAK,
    "KV cache pool leak detected!": EventKind.LEAK,
    "Health check failed. Server couldn't get a response from detokenizer": EventKind.HEALTH_FAILED,
    "Initialization failed. warmup error: Traceback": EventKind.WARMUP_FAILED,
    "Entering DeepGEMM JIT Pre-Compile session. It may take a long time": EventKind.JIT,
    "Entering DeepGEMM JIT Pre-Complie session. It may take a long time": EventKind.JIT,
    "Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=4096, K=4096, num_groups=1 with all Ms.": EventKind.JIT,
    "PP-parallel DeepGEMM warmup start (pp_rank=0, tp_rank=0, batch_sizes=[1], disagg=null).": EventKind.JIT,
    "Cached JIT module sgl_kernel_jit_x failed to load; rebuilding.": EventKind.JIT,
    "flashinfer.jit: Loading JIT ops: batch_prefill": EventKind.JIT,
    "Detected errors during sampling! NaN in the logits.": EventKind.NAN,
    "RuntimeError: CUDA error: an illegal memory access was encountered": EventKind.CUDA_ERROR,
    "CUDA error (a.cu:93): no kernel image is available for execution on the device": EventKind.CUDA_ERROR,
    "ptxas error   : Entry function 'f' uses too much shared data (0xc980 bytes, 0xc000 max)": EventKind.PTXAS_ERROR,
    "[Errno 98] error while attempting to bind on address: address already in use": EventKind.PORT_IN_USE,
    "Failed to load plugin dsv4_kernels from group sglang.srt.plugins": EventKind.PLUGIN_FAILED,
    "Failed to execute general plugin: dsv4_kernels": EventKind.PLUGIN_FAILED,
    "Failed to apply hooks to sglang.srt.x": EventKind.PLUGIN_FAILED,
    "SIGTERM received. signum=15 frame=None. Draining requests and shutting down...": EventKind.SHUTDOWN,
    "Cache flushed successfully!": EventKind.FLUSH,
    "Cache not flushed because there are pending requests. #queue-req: 1": EventKind.FLUSH_REFUSED,
}
NCCL = (
    "[rank1]:[E210 02:06:33.347835395 ProcessGroupNCCL.cpp:1595] [PG 0 Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, Timeout(ms)=600000) ran for 600003 milliseconds"
)


@pytest.mark.parametrize("text", FAILURES)
@pytest.mark.parametrize("prefix", [T, ""])
def test_failure_line_is_known_with_and_without_a_prefix(text: str, prefix: str) -> None:
    event = parse(prefix + text).events[0]
    assert event.kind is FAILURES[text]
    assert event.rank == ("TP0" if prefix else None)


def test_c10d_line_with_its_own_date_format_is_read_and_has_no_time() -> None:
    (event,) = parse(NCCL).events
    assert (event.kind, event.time) == (EventKind.NCCL_TIMEOUT, None)


def test_traceback_is_one_event_with_its_last_line_as_the_error(data_dir: Path) -> None:
    log = parse((data_dir / "h200_v4mini_dies_in_graph_capture.server.log").read_bytes().decode())
    (event,) = log.of(EventKind.EXCEPTION)
    assert event.fields["error"] == "AssertionError: Hidden size mismatch"
    assert len(event.fields["traceback"]) > 80
    assert not log.of(EventKind.TRACEBACK)
    assert log.ready is None
    assert log.graph_batch_sizes == (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)


def test_start_up_facts_of_a_real_deepseek_v4_server(data_dir: Path) -> None:
    log = parse((data_dir / "h200_v4mini_silent_stalls.server.log").read_bytes().decode())
    assert (log.max_total_tokens, log.max_running_requests, log.context_len) == (55027200, 64, 65536)
    assert (log.facts.page_size, log.facts.chunked_prefill_size, log.facts.stream_interval) == (256, 8192, 1)
    assert log.ready
    assert log.ready.line_no == 71
    assert (len(log.prefill), len(log.decode), log.unparsed) == (94, 85, 0)


def test_progress_bar_before_a_line_does_not_hide_it() -> None:
    bar = "\r  0%|   | 0/12 [00:00<?, ?it/s]\rCapturing batches (bs=64 avail_mem=52.32 GB):   0%|   | 0/12 [00:00<?]"
    log = parse(f"{bar}{T}{DECODE}\r\n\rCapturing batches (bs=8 avail_mem=51.00 GB): 8%\n{T}{DECODE}\n")
    assert [line.running for line in log.decode] == [2, 2]
    assert log.graph_batch_sizes == (8, 64)


def test_lines_that_two_ranks_glued_together_are_both_read() -> None:
    log = parse(f"{T}{DECODE}{T.replace('TP0', 'TP1')}{DECODE}\n")
    assert [line.rank for line in log.decode] == ["TP0", "TP1"]
    assert log.decode[0].raw == T + DECODE


def test_torn_batch_line_is_counted_and_not_guessed() -> None:
    log = parse(f"{T}{DECODE}\n{T}Decode batch, #running-req: 1, #tok\n")
    assert (len(log.decode), log.unparsed) == (1, 1)


def test_log_whose_batch_lines_have_an_unknown_format_is_an_error_even_with_start_up_lines() -> None:
    ready = f"{T}The server is fired up and ready to roll!\n"
    with pytest.raises(ServerLogError, match="2 lines name a prefill or decode batch"):
        parse(ready + f"{T}Decode batch => running=1\n{T}Prefill batch => new=1\n")


@pytest.mark.parametrize(
    "text", ["", "\n\n", "hello\nworld\n", "\x00\xff" * 50, "[2026-11-15 04:01:51 TP0] something\n"]
)
def test_log_from_which_nothing_was_read_is_an_error(text: str) -> None:
    with pytest.raises(ServerLogError, match="nothing in these"):
        parse(text)
    assert parse(text, allow_empty=True).events == ()


def test_log_that_ends_before_the_first_batch_is_fine() -> None:
    log = parse(f"{T}Load weight begin. avail mem=139.07 GB\n")
    assert log.of(EventKind.WEIGHTS_BEGIN)
    assert not log.ready


def test_secrets_in_the_server_arguments_are_not_kept() -> None:
    log = parse(
        f"{T}server_args=ServerArgs(model_path='/home/me/m', api_key='sk-123', served_model_name='dsv4', tp_size=8)"
    )
    assert "sk-123" not in repr(log)
    assert "/home/me" not in repr(log)
    assert (log.facts.served_model_name, log.facts.tp_size) == ("dsv4", 8)


def test_access_line_is_read_with_client_path_and_status() -> None:
    (event,) = parse('[2026-11-15 04:01:51] INFO:     10.0.0.7:5123 - "POST /generate?x=1 HTTP/1.1" 503 Busy').events
    assert event.fields == {"client": "10.0.0.7:5123", "method": "POST", "path": "/generate", "status": 503}


def test_older_capture_line_gives_the_graph_sizes() -> None:
    log = parse(f"{T}Capture cuda graph bs [1, 2, 4, 160]\n{T}Capture draft cuda graph begin. bs=[7]\n")
    assert log.graph_batch_sizes == (1, 2, 4, 160)


def test_window_by_time_keeps_facts_and_what_follows_without_a_time() -> None:
    lines = [f"[2026-11-15 04:0{m}:00 TP0] {DECODE}\n" for m in range(5)]
    log = parse("".join([*lines[:3], "CUDA error: an illegal memory access was encountered\n", *lines[3:]]))
    first = log.decode[0].time
    assert first is not None
    part = between(log, first + 60, first + 150)
    assert len(part.decode) == 2
    assert part.of(EventKind.CUDA_ERROR)
    assert part.facts is log.facts
