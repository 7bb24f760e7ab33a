"""The server's ``/metrics`` counters over the run against the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from perfgate.validity.problem import Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.workload import Plan, Sample

_ACCOUNTING = ("num_requests_total", "generation_tokens_total", "prompt_tokens_total")
_MUST_NOT_GROW = {
    "num_aborted_requests_total": Kind.COUNTERS,
    "num_aborted_requests": Kind.COUNTERS,
    "num_retracted_requests_total": Kind.RETRACTION,
}


def families(counters: Mapping[str, float]) -> dict[str, float]:
    """Differences by bare family name: ``sglang:`` (or ``sglang_``) and labels taken off, label sets summed."""
    sums: dict[str, float] = {}
    for name, value in counters.items():
        bare = name.partition("{")[0].removeprefix("sglang:").removeprefix("sglang_")
        sums[bare] = sums.get(bare, 0.0) + value
    return sums


def check_counters(sample: Sample, plan: Plan, counters: Mapping[str, float], limits: Limits) -> Iterator[Problem]:
    """Requests, generated and prompt tokens equal the plan, warm-up included; nothing aborted, retracted or cached.

    A counter that never fired is absent and means 0. Every version counts tokens; the request counter alone is taken as one
    that this version lacks where it is absent and tokens did fire (0.4.1). Gauges are not looked at: they keep old values
    (B07).
    """
    delta = families(counters)
    planned = dict(
        zip(_ACCOUNTING, (plan.requests, plan.generated_with_warmup, plan.prompted_with_warmup), strict=True)
    )
    fired = {name for name in _ACCOUNTING if delta.get(name, 0.0) != 0}
    if not fired:
        message = "the metrics show no request at all: they are not those of the server that answered"
        yield problem(Kind.COUNTERS, message, [f"{name} +{delta.get(name, 0.0):g}" for name in _ACCOUNTING])
        return
    wrong = [
        f"{name} +{delta.get(name, 0.0):g}, planned {wanted}"
        for name, wanted in planned.items()
        if (name in delta or name != "num_requests_total") and delta.get(name, 0.0) != wanted
    ]
    if wrong:
        request_delta = delta.get("num_requests_total")
        if request_delta is not None and request_delta > plan.requests:
            kind = Kind.STRAY_REQUESTS
        elif all(figure.startswith("prompt_tokens_total") for figure in wrong):
            kind = Kind.INPUT_LENGTH  # the right requests with other prompts: text that came back longer (B14)
        else:
            kind = Kind.COUNTERS
        yield problem(kind, "the server's counters did not grow as planned", wrong)
    for name, kind in _MUST_NOT_GROW.items():
        value = delta.get(name, 0.0)
        if value != 0 or math.isnan(value):
            yield problem(kind, f"{name} grew by {value:g}", [f"{name} +{value:g}"])
    cached = delta.get("cached_tokens_total", 0.0)
    if cached > 0:
        share = cached / plan.prompted_with_warmup
        message = f"{share:.1%} of the prompt tokens came from the cache"
        figure = [f"cached_tokens_total +{cached:g}"]
        yield problem(Kind.CACHED_TOKENS, message, figure, invalid=share > limits.cached_share)
