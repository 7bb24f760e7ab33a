"""A healthy sample and its server's log, to be spoilt one thing at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from perfgate.serverlog import ServerLog, parse
from perfgate.validity import Problem, ProblemKind, check
from perfgate.workload import Plan, Sample

PLAN = Plan(concurrency=16, num_prompts=80, input_len=1024, output_len=256)
ALONE = Plan(concurrency=1, num_prompts=5, input_len=1024, output_len=256)
START = datetime(2026, 11, 15, 4, 0, 0).timestamp()


def healthy(plan: Plan = PLAN, tpot_ms: float = 9.0, ttft_ms: float = 120.0, **changes: Any) -> Sample:
    """A sample whose figures agree: waves of C requests, 1 % of the time between them."""
    e2e_ms = ttft_ms + tpot_ms * (plan.output_len - 1)
    duration = plan.num_prompts / plan.concurrency * e2e_ms / 1000 * 1.01
    base = Sample(
        max_concurrency=plan.concurrency,
        completed=plan.num_prompts,
        duration_s=duration,
        total_input_tokens=plan.input_tokens,
        total_output_tokens=plan.output_tokens,
        output_throughput=plan.output_tokens / duration,
        total_output_tokens_retokenized=plan.output_tokens,
        request_throughput=plan.num_prompts / duration,
        concurrency=plan.num_prompts * e2e_ms / 1000 / duration,
        mean_ttft_ms=ttft_ms,
        median_ttft_ms=ttft_ms,
        p99_ttft_ms=ttft_ms * 1.5,
        mean_tpot_ms=tpot_ms,
        median_tpot_ms=tpot_ms,
        p99_tpot_ms=tpot_ms * 1.1,
        mean_itl_ms=tpot_ms,
        median_itl_ms=tpot_ms,
        p99_itl_ms=tpot_ms * 2,
        mean_e2e_latency_ms=e2e_ms,
        random_input_len=plan.input_len,
        random_output_len=plan.output_len,
    )
    return replace(base, **changes)


def deltas(plan: Plan = PLAN, **changes: float) -> dict[str, float]:
    """What the counters grow by over a clean run."""
    return {
        "num_requests_total": float(plan.requests),
        "generation_tokens_total": float(plan.generated_with_warmup),
        "prompt_tokens_total": float(plan.prompted_with_warmup),
        **changes,
    }


def stamp(seconds: float) -> str:
    """The prefix's time, ``seconds`` after the run began."""
    return datetime.fromtimestamp(START + seconds).strftime("%Y-%m-%d %H:%M:%S")


def prefill_line(
    at: float,
    seqs: int,
    new: int,
    cached: int = 0,
    running: int = 0,
    queued: int = 0,
    pending: int = 0,
    full: float = 0.1,
) -> str:
    return (
        f"[{stamp(at)}] Prefill batch, #new-seq: {seqs}, #new-token: {new}, #cached-token: {cached}, "
        f"full token usage: {full:.2f}, swa token usage: 0.06, #running-req: {running}, #queue-req: {queued}, "
        f"#pending-token: {pending}, cuda graph: False, input throughput (token/s): 1000.00"
    )


def decode_line(
    at: float,
    running: int,
    queued: int = 0,
    graph: str = "cuda graph: True",
    full: float = 0.1,
    throughput: float = 1700.0,
    accept: str = "",
    rank: str = "",
) -> str:
    return (
        f"[{stamp(at)}{rank}] Decode batch, #running-req: {running}, #full token: 20480, full token usage: {full:.2f}, "
        f"#swa token: 4096, swa token usage: 0.06, {accept}{graph}, gen throughput (token/s): {throughput:.2f}, "
        f"#queue-req: {queued}"
    )


def access_line(at: float, request: str = "POST /generate", client: str = "127.0.0.1:40000", status: int = 200) -> str:
    return f'[{stamp(at)}] INFO:     {client} - "{request} HTTP/1.1" {status} OK'


def run_lines(plan: Plan = PLAN, at: float = 0.0, page: int = 1) -> list[str]:
    """One clean client run: the warm-up, then waves of C requests."""
    rounded = -(-plan.input_len // page) * page
    lines = [access_line(at, "GET /v1/models"), access_line(at, "GET /model_info")]
    for _ in range(plan.warmup_requests):
        lines += [prefill_line(at, 1, rounded), access_line(at)]
    sent, wave = 0, 0
    while sent < plan.num_prompts:
        count = min(plan.concurrency, plan.num_prompts - sent)
        time = at + 2 + wave * 2.4
        lines += [access_line(time, client=f"127.0.0.1:{41000 + sent + i}") for i in range(count)]
        lines += [prefill_line(time, count, count * rounded)]
        lines += [decode_line(time + step, count) for step in (0.4, 0.8, 1.2, 1.6, 2.0)]
        sent, wave = sent + count, wave + 1
    end = at + 2 + wave * 2.4
    return [*lines, access_line(end, "GET /server_info"), access_line(end, "GET /server_info")]


STARTUP = (
    f"[{stamp(-90)}] server_args=ServerArgs(model_path='m', served_model_name='dsv4', page_size=1, tp_size=1, "
    "decode_log_interval=40, stream_interval=1, device='cuda', disable_cuda_graph=False)",
    f"[{stamp(-60)}] Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1, 2, 4, 8, 16], "
    "avail mem=52.35 GB",
    f"[{stamp(-30)}] max_total_num_tokens=500000, chunked_prefill_size=32768, max_prefill_tokens=16384, "
    "max_running_requests=64, context_len=65536, available_gpu_mem=52.09 GB",
    f"[{stamp(-20)}] The server is fired up and ready to roll!",
)


def log_of(*lines: str, startup: bool = True) -> ServerLog:
    return parse("\n".join((*(STARTUP if startup else ()), *lines)) + "\n")


def kinds(problems: list[Problem], invalid: bool | None = True) -> set[ProblemKind]:
    """The kinds among ``problems``: those that make it INVALID, the warnings (False), or all (None)."""
    return {p.kind for p in problems if invalid is None or p.invalid is invalid}


def judged(
    sample: Sample | None = None, log: ServerLog | None = None, plan: Plan = PLAN, **more: Any
) -> set[ProblemKind]:
    """What makes the sample INVALID."""
    return kinds(check(healthy(plan) if sample is None else sample, log, plan, **more))
