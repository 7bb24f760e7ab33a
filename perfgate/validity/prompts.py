"""The prompts that the server prefilled against the plan: how many, how long, how much of them from the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perfgate.serverlog import EventKind, PrefillBatch
from perfgate.validity.lines import cut_lines, health_gets, is_probe, page_size, pieces, primary
from perfgate.validity.problem import Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.validity.runs import Window
from perfgate.workload import Plan


def check_prefill(window: Window, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """Prefill lines against the plan: how many prompts, how long, how many of their tokens cached."""
    log = window.log
    prefill, _ = primary(log)
    if not prefill:
        return
    page = page_size(log, prefill)
    asked = health_gets(log) > 0
    probes = [line for line in prefill if is_probe(line, page, plan.input_len, asked)]
    if probes and not asked:
        message = "lines shaped like SGLang's own health probe"
        yield problem(Kind.HEALTH_PROBE, message, [line.raw for line in probes], invalid=False)
    own = [line for line in prefill if line not in probes]
    yield from _cached(own, limits)
    yield from _count_and_length(window, own, page, plan, limits)


def _cached(own: list[PrefillBatch], limits: Limits) -> Iterator[Problem]:
    cached = sum(line.cached_tokens for line in own)
    tokens = cached + sum(line.new_tokens for line in own)
    if cached > 0:
        share = cached / tokens
        lines = [f"{cached} of {tokens} prompt tokens cached", *(line.raw for line in own if line.cached_tokens)]
        message = f"{share:.1%} of the prompt tokens came from the cache (at most {limits.cached_share:.0%})"
        yield problem(Kind.CACHED_TOKENS, message, lines, invalid=share > limits.cached_share)


def _count_and_length(
    window: Window, own: list[PrefillBatch], page: int, plan: Plan, limits: Limits
) -> Iterator[Problem]:
    log = window.log
    cut = cut_lines(log, own, page)
    twice = pieces(log, own, page)
    seqs = sum(line.new_seqs for line in own)
    retracted = bool(log.of(EventKind.RETRACTION))  # a retracted request is prefilled again
    extra = 0 if retracted else seqs - twice - plan.requests
    whole = [line for index, line in enumerate(own) if index not in cut and line.new_seqs > 0]
    misfits = [line for line in whole if not _fits(line, plan.input_len, page)]
    alien = [line for line in misfits if _alien(line, plan.input_len, page)]
    exact_plan = len(whole) - len(misfits) >= 0.8 * len(whole)
    if extra > 0 or alien or (misfits and exact_plan):
        lines = alien or (misfits if exact_plan else [])
        message = "prompts were prefilled that are not in the plan"
        if extra > 0:
            message = f"at least {seqs - twice} prompts were prefilled where {plan.requests} were planned"
        evidence = [line.raw for line in lines] or [f"#new-seq adds up to {seqs}, {twice} perhaps counted twice"]
        yield problem(Kind.STRAY_PREFILL, message, evidence)
    found = list(_length([line for line in whole if line not in alien], page, plan, limits))
    if not found and extra <= 0 and not retracted:
        found = list(_total_length(own, twice, page, plan, limits))
    yield from found
    if seqs < plan.requests and window.complete and not log.unparsed:
        message = f"the log shows {seqs} prompts where {plan.requests} were sent; was all of it given?"
        yield problem(Kind.REQUESTS_MISSING, message, [f"#new-seq adds up to {seqs}"], invalid=False)


def _length(whole: list[PrefillBatch], page: int, plan: Plan, limits: Limits) -> Iterator[Problem]:
    seqs = sum(line.new_seqs for line in whole)
    if not seqs:
        return
    tokens = sum(line.new_tokens + line.cached_tokens for line in whole)
    low = sum(line.new_seqs * plan.input_len for line in whole)
    high = sum(_most(line, plan.input_len, page) for line in whole)
    if tokens > high * (1 + limits.input_share) or tokens < low * (1 - limits.input_share):
        rounding = f", rounded up to pages of {page}" if page > 1 else ""
        message = f"prompts of {tokens / seqs:.0f} tokens on average{rounding}, {plan.input_len} were planned"
        lines = [line.raw for line in whole if not _fits(line, plan.input_len, page)]
        yield problem(Kind.INPUT_LENGTH, message, lines)


def _total_length(own: list[PrefillBatch], twice: int, page: int, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """All prompts together, for a load so heavy that hardly a batch holds whole prompts alone."""
    tokens = sum(line.new_tokens + line.cached_tokens for line in own)
    most = plan.requests * math.ceil(plan.input_len / page) * page + twice * page
    if any(line.cached_tokens for line in own):
        most += plan.requests * (page - 1)
    if tokens > most * (1 + limits.input_share):
        message = (
            f"{tokens} prompt tokens were prefilled where {plan.requests} prompts of {plan.input_len} were planned"
        )
        yield problem(Kind.INPUT_LENGTH, message, [f"#new-token and #cached-token add up to {tokens}, at most {most}"])


def _most(line: PrefillBatch, input_len: int, page: int) -> int:
    if line.cached_tokens:
        return line.new_seqs * (input_len + page - 1)
    return line.new_seqs * math.ceil(input_len / page) * page


def _fits(line: PrefillBatch, input_len: int, page: int) -> bool:
    tokens = line.new_tokens + line.cached_tokens
    return line.new_seqs * input_len <= tokens <= _most(line, input_len, page)


def _alien(line: PrefillBatch, input_len: int, page: int) -> bool:
    # Text that is tokenised again moves a length by a quarter as a rule, and by a factor of three at the most seen.
    tokens = (line.new_tokens + line.cached_tokens) / line.new_seqs
    return tokens < input_len / 2 or tokens > 4 * _most(line, input_len, page) / line.new_seqs
