"""Is the result line this plan's, whole, and possible? Judged from the client's figures alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfgate.validity.problem import Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.workload import Plan, Sample


def check_completeness(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """Exit code, requests, tokens and text: what A2 of the field cases shows to betray a failed run."""
    if sample.exit_code != 0:
        yield problem(Kind.CLIENT_EXIT, f"the client exited with {sample.exit_code}", [f"exit code {sample.exit_code}"])
    if sample.errors:
        yield problem(Kind.REQUEST_ERROR, f"{len(sample.errors)} requests failed", [e[:300] for e in sample.errors])
    if sample.completed != plan.num_prompts:
        figures = [f"completed {sample.completed}", f"asked {plan.num_prompts}"]
        yield problem(Kind.INCOMPLETE, f"{sample.completed} of {plan.num_prompts} requests completed", figures)
    short = [f"output_lens[{i}] = {n}" for i, n in enumerate(sample.output_lens) if n != plan.output_len]
    if sample.total_output_tokens != plan.output_tokens or short:
        message = f"{sample.total_output_tokens} tokens generated where {plan.output_tokens} were asked"
        yield problem(Kind.OUTPUT_LENGTH, message, [f"total_output_tokens {sample.total_output_tokens}", *short])
    yield from _text(sample, plan, limits)
    yield from _input(sample, plan, limits)


def _text(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    # The client counts the length asked for until text arrives, so an aborted request looks complete (B01, B02).
    retokenized = sample.total_output_tokens_retokenized
    if retokenized is None:
        return
    share = retokenized / plan.output_tokens
    figure = [f"total_output_tokens_retokenized {retokenized} of {plan.output_tokens}"]
    if share < limits.retokenized_share:
        yield problem(Kind.NO_TEXT, f"the text received holds {share:.0%} of the tokens counted", figure)
    elif share < limits.retokenized_warn:
        yield problem(Kind.OUTPUT_SHORTFALL, f"the text received re-tokenises to {share:.0%}", figure, invalid=False)


def _input(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    figures = []
    if abs(sample.total_input_tokens - plan.input_tokens) > limits.input_share * plan.input_tokens:
        figures.append(f"total_input_tokens {sample.total_input_tokens}, planned {plan.input_tokens}")
    if sample.input_lens:
        mean = sum(sample.input_lens) / len(sample.input_lens)
        if not abs(mean - plan.input_len) <= limits.input_share * plan.input_len:
            figures.append(f"mean of input_lens {mean:.1f}, planned {plan.input_len}")
    if figures:
        yield problem(Kind.INPUT_LENGTH, f"the prompts are not {plan.input_len} tokens long", figures)


def check_identity(sample: Sample, plan: Plan, served_model_name: str | None) -> Iterator[Problem]:
    """A line left by another run: its settings or its model are not this plan's, or it took longer than the run."""
    figures = [
        f"{name} {got}, planned {planned}"
        for name, got, planned in (
            ("max_concurrency", sample.max_concurrency, plan.concurrency),
            ("random_input_len", sample.random_input_len, plan.input_len),
            ("random_output_len", sample.random_output_len, plan.output_len),
            ("served_model_name", sample.served_model_name, served_model_name),
        )
        if got is not None and planned is not None and got != planned
    ]
    if sample.max_concurrency is None:
        figures.append(f"max_concurrency is not set: the client sent everything at once, planned {plan.concurrency}")
    if sample.started_at is not None and sample.ended_at is not None:
        wall = sample.ended_at - sample.started_at
        # Both are read on one machine; a second covers a clock that was stepped by NTP.
        if sample.duration_s > wall + 1:
            figures.append(f"duration {sample.duration_s:.2f} s, but the client ran for {wall:.2f} s")
    if figures:
        yield problem(Kind.WRONG_RESULT, "the result line is not this run's", figures)


def check_arithmetic(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """Figures that follow from each other must agree: a throughput, a concurrency or a latency that can't be."""
    if not 0 < sample.duration_s < math.inf:
        yield problem(Kind.INCONSISTENT, f"duration {sample.duration_s} s", [f"duration {sample.duration_s}"])
        return
    pairs: list[tuple[str, float | None, float | None]] = [
        ("output_throughput", sample.output_throughput, sample.total_output_tokens / sample.duration_s),
        ("request_throughput", sample.request_throughput, sample.completed / sample.duration_s),
    ]
    if sample.total_throughput is not None:
        tokens = sample.total_input_tokens + sample.total_output_tokens
        pairs.append(("total_throughput", sample.total_throughput, tokens / sample.duration_s))
    e2e = sample.mean_e2e_latency_ms
    if e2e is not None and sample.concurrency is not None:
        pairs.append(("concurrency", sample.concurrency, sample.completed * e2e / 1000 / sample.duration_s))
    if e2e is not None and sample.mean_ttft_ms is not None and sample.mean_tpot_ms is not None and plan.output_len > 1:
        # Every request has the same length, so the means add up exactly.
        expected = sample.mean_ttft_ms + sample.mean_tpot_ms * (plan.output_len - 1)
        pairs.append(("mean_e2e_latency_ms", e2e, expected))
    figures = [
        f"{name} {got:.6g}, but the line's other figures give {expected:.6g}"
        for name, got, expected in pairs
        if got is not None and expected is not None and not _near(got, expected, limits.identity)
    ]
    for name in ("ttft", "tpot", "itl", "e2e_latency"):
        median, p99 = getattr(sample, f"median_{name}_ms"), getattr(sample, f"p99_{name}_ms")
        if median is not None and p99 is not None and not median <= p99 * (1 + limits.identity):
            figures.append(f"median_{name}_ms {median:.6g} above p99_{name}_ms {p99:.6g}")
    if figures:
        yield problem(Kind.INCONSISTENT, "the result line contradicts itself", figures)


def _near(got: float, expected: float, tolerance: float) -> bool:
    return math.isfinite(got) and math.isfinite(expected) and abs(got - expected) <= tolerance * abs(expected) + 1e-9


def check_latency(sample: Sample, plan: Plan) -> Iterator[Problem]:
    """TTFT and ITL must be there and above 0; a stream without text, or swallowed by a parser, shows 0 (B02, B16)."""
    groups = [("ttft", (sample.median_ttft_ms, sample.mean_ttft_ms))]
    if plan.output_len > 1:
        groups.append(("itl", (sample.mean_itl_ms, sample.median_itl_ms)))
        if sample.median_tpot_ms is not None or sample.mean_tpot_ms is not None:
            groups.append(("tpot", (sample.median_tpot_ms, sample.mean_tpot_ms)))
    figures = []
    for name, values in groups:
        known = [v for v in values if v is not None]
        if not known:
            figures.append(f"no {name} in the result line")
        elif not all(0 < v < math.inf for v in known):
            figures.append(f"{name} {', '.join(f'{v:.3f}' for v in known)} ms")
    if figures:
        yield problem(Kind.LATENCY, "a latency is missing or 0", figures)
