"""What the server itself did in the window: compiled, retracted, fell off its graphs, stood still, failed."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator

from perfgate.serverlog import DecodeBatch, EventKind, PrefillBatch, ServerLog
from perfgate.validity.lines import primary
from perfgate.validity.problem import Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.validity.runs import generation_posts
from perfgate.workload import Plan, Sample

_FAULTS = (
    EventKind.EXCEPTION,
    EventKind.GPU_OOM,
    EventKind.CUDA_ERROR,
    EventKind.PTXAS_ERROR,
    EventKind.NCCL_TIMEOUT,
    EventKind.KV_EXHAUSTED,
    EventKind.CHILD_DIED,
    EventKind.REQUEST_ABORTED,
    EventKind.REQUEST_ERROR,
    EventKind.NAN,
    EventKind.GRAPH_FAILED,
    EventKind.WARMUP_FAILED,
)
_WARNINGS = (EventKind.TRACEBACK, EventKind.LEAK, EventKind.HEALTH_FAILED, EventKind.FLUSH_REFUSED)
_FULL = 0.99


def check_plugins(log: ServerLog) -> Iterator[Problem]:
    """A plug-in that failed to load, which SGLang only logs: the server runs without its patch."""
    failed = [event.text for event in log.of(EventKind.PLUGIN_FAILED)]
    if failed:
        yield problem(Kind.SERVER_FAULT, "a plug-in failed to load: the server runs without its patch", failed)


def check_events(log: ServerLog) -> Iterator[Problem]:
    """Failures, JIT and retraction. What follows the start of a shutdown is its noise."""
    stop = min((e.line_no for e in log.of(EventKind.SHUTDOWN)), default=None)
    events = [e for e in log.events if stop is None or e.line_no < stop]
    jit = [e.text for e in events if e.kind is EventKind.JIT]
    if jit:
        yield problem(Kind.JIT, "the server compiled kernels during the sample", jit)
    retracted = [e.text for e in events if e.kind is EventKind.RETRACTION]
    batches: list[PrefillBatch | DecodeBatch] = [*log.prefill, *log.decode]
    full = [line.raw for line in batches if max(line.usages.values(), default=0.0) >= _FULL]
    if retracted:
        yield problem(Kind.RETRACTION, "requests were retracted: the KV pool was full", [*retracted, *full])
    elif full:
        yield problem(Kind.KV_FULL, "the KV pool was full", full, invalid=False)
    hard = [e.text for e in events if e.kind in _FAULTS or (e.kind is EventKind.WATCHDOG and "soft=True" not in e.text)]
    if hard:
        yield problem(Kind.SERVER_FAULT, "the server reported a failure during the sample", hard)
    soft = [e.text for e in events if e.kind in _WARNINGS or (e.kind is EventKind.WATCHDOG and "soft=True" in e.text)]
    if soft:
        yield problem(Kind.SERVER_FAULT, "the server reported trouble during the sample", soft, invalid=False)
    if log.unparsed:
        message = f"{log.unparsed} batch lines of the log could not be read"
        yield problem(Kind.UNREADABLE_LOG, message, [f"{log.unparsed} lines"], invalid=False)


def check_graphs(log: ServerLog) -> Iterator[Problem]:
    """Decode batches that ran without a graph although one was captured for their size. The CPU engine has none."""
    _, decode = primary(log)
    off = [line for line in decode if line.graph is False and line.graph_label != "cpu graph"]
    if not off or log.facts.device == "cpu":
        return
    sizes = log.facts.graph_batch_sizes
    inside = [line.raw for line in off if not sizes or line.running <= sizes[-1]]
    if not sizes and log.facts.graph_off_reason:
        message = f"decode ran without graphs: {log.facts.graph_off_reason}"
        yield problem(Kind.GRAPH_OFF, message, inside, invalid=False)
    elif inside:
        captured = f"captured up to {sizes[-1]}" if sizes else "the log names no captured sizes"
        yield problem(Kind.GRAPH_OFF, f"decode ran without graphs ({captured})", inside)
    else:
        message = f"decode batches above the largest captured size ({sizes[-1]}) ran without a graph"
        yield problem(Kind.GRAPH_OFF, message, [line.raw for line in off], invalid=False)


def check_queue(log: ServerLog, plan: Plan) -> Iterator[Problem]:
    """Requests that wait while fewer than C decode: the server admits fewer than were asked of it."""
    _, decode = primary(log)
    waiting = [line for line in decode if line.queued > 0]
    most = max((line.running for line in decode), default=0)
    if len(waiting) >= 3 and most < plan.concurrency and len({line.rank for line in decode}) == 1:
        message = f"never more than {most} of C={plan.concurrency} decoded at once; the rest waited"
        yield problem(Kind.QUEUED, message, [line.raw for line in waiting], invalid=False)


def check_accept_length(log: ServerLog, sample: Sample, limits: Limits) -> Iterator[Problem]:
    """The client reports the server's lifetime average; this window's own, from decode lines, must agree (B23)."""
    seen = [line.accept_length for line in log.decode if line.accept_length]
    if not sample.accept_length or len(seen) < 3:
        return
    mean = statistics.fmean(seen)
    if abs(mean / sample.accept_length - 1) > limits.accept_share:
        message = f"accept length {mean:.2f} in this window, {sample.accept_length:.2f} over the server's life"
        yield problem(Kind.ACCEPT_LENGTH, message, [f"{len(seen)} decode lines, mean {mean:.3f}"], invalid=False)


def check_chunks(log: ServerLog) -> Iterator[Problem]:
    """Several tokens a streamed chunk move time from TPOT to TTFT (B17)."""
    interval = log.facts.stream_interval
    if interval is not None and interval > 1:
        message = f"the server streams {interval} tokens a chunk: TPOT is too low and TTFT too high"
        yield problem(Kind.TOKENS_PER_CHUNK, message, [f"stream_interval={interval}"], invalid=False)


def _timed(batches: list[PrefillBatch | DecodeBatch]) -> list[PrefillBatch | DecodeBatch]:
    return sorted((b for b in batches if b.time is not None), key=lambda b: b.line_no)


def check_gaps(log: ServerLog, sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """A pause between two batch lines while requests were in flight: a standstill too short for Little's law."""
    posts = generation_posts(log)
    start = posts[plan.warmup_requests].time if len(posts) > plan.warmup_requests else None
    prefill, decode = primary(log)
    records = _timed([*prefill, *decode])
    if start is None:
        seen = 0
        measured: list[PrefillBatch | DecodeBatch] = []
        for record in records:
            if seen > plan.warmup_requests:
                measured.append(record)
            seen += record.new_seqs if isinstance(record, PrefillBatch) else 0
        records = measured
    step_s = (sample.step_ms or 0.0) / 1000 * (log.facts.decode_log_interval or 40)
    least = max(limits.stall_s, 3 * step_s, limits.stall_share * sample.duration_s)
    for before, after in itertools.pairwise(records):
        assert before.time is not None
        assert after.time is not None
        gap = after.time - max(before.time, start if start is not None else before.time)
        if gap - 1 > least:  # times are cut to whole seconds
            message = f"nothing happened for {gap:.0f} s while requests were in flight"
            yield problem(Kind.STANDSTILL, message, [before.raw, after.raw])
            return


def check_server_info(log: ServerLog, sample: Sample, limits: Limits) -> Iterator[Problem]:
    """The client's duration holds its own look at ``/server_info`` after the last token (B26)."""
    posts = generation_posts(log)
    records = _timed([*log.prefill, *log.decode])
    if not posts or not records:
        return
    asked = [
        e
        for e in log.of(EventKind.ACCESS)
        if e.fields.get("path") in ("/server_info", "/get_server_info") and e.line_no > posts[-1].line_no
    ]
    last = records[-1]
    if not asked or asked[0].time is None or last.time is None or asked[0].line_no < last.line_no:
        return
    step_s = (sample.step_ms or 0.0) / 1000 * (log.facts.decode_log_interval or 40)
    gap = asked[0].time - last.time - 1 - step_s  # whole seconds; up to one interval of steps leaves no line
    if gap > limits.server_info_s:
        share = gap / sample.duration_s if sample.duration_s > 0 else 1.0
        message = f"/server_info was answered {gap:.0f} s or more after the last batch, inside the client's duration"
        yield problem(Kind.SLOW_SERVER_INFO, message, [last.raw, asked[0].text], invalid=share > limits.stall_share)
