"""Was the server under the load meant, and did it keep working? Little's law, concurrency, TTFT outliers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from perfgate.validity.problem import Limits, Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.workload import Plan, Sample


def _token_time_ms(median: float | None, mean: float | None, spare: float | None) -> float | None:
    for value in (median, mean, spare):
        if value is not None and 0 < value < math.inf:
            return value
    return None


def little_share(sample: Sample, plan: Plan) -> float | None:
    """Output tokens/s as a share of C / median TPOT, both of this sample; None without a TPOT (0.4.6, 0.5.2: ITL)."""
    in_flight = min(plan.concurrency, plan.num_prompts)
    spare = None if sample.accept_length else sample.median_itl_ms
    token_ms = _token_time_ms(sample.median_tpot_ms, sample.mean_tpot_ms, spare)
    if token_ms is None or plan.output_len < 2:
        return None
    return sample.output_throughput / (in_flight * 1000 / token_ms)


def check_little(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """Little's law, both ways: far below C/TPOT the server stood still; above it the figures are wrong."""
    share = little_share(sample, plan)
    if share is None:
        return
    in_flight = min(plan.concurrency, plan.num_prompts)
    if not share >= limits.little_share:
        yield problem(
            Kind.STANDSTILL,
            f"{sample.output_throughput:.1f} tokens/s is {share:.0%} of C/TPOT (at least {limits.little_share:.0%}): "
            "the server stood still for most of the sample",
            [
                f"output_throughput {sample.output_throughput:.1f} tokens/s, duration {sample.duration_s:.2f} s",
                f"C {in_flight}, median TPOT {sample.median_tpot_ms} ms, mean TPOT {sample.mean_tpot_ms} ms",
                f"TTFT median {sample.median_ttft_ms} ms, mean {sample.mean_ttft_ms} ms, p99 {sample.p99_ttft_ms} ms",
            ],
        )
    # Sum of latencies <= C * duration and latency >= (OSL - 1) * TPOT, so this bound is exact for the mean.
    mean = _token_time_ms(sample.mean_tpot_ms, sample.median_tpot_ms, None)
    if mean is None:
        return
    bound = in_flight * 1000 / mean * plan.output_len / (plan.output_len - 1)
    if sample.output_throughput > bound * limits.little_excess:
        figures = [f"output_throughput {sample.output_throughput:.1f}, C {in_flight}, mean TPOT {mean:.3f} ms"]
        message = f"{sample.output_throughput:.1f} tokens/s is more than C/TPOT allows ({bound:.1f})"
        yield problem(Kind.ABOVE_LITTLE, message, figures)


def check_concurrency(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """Mean concurrency near C. A duration that holds a slow ``/server_info`` or an idle client shows here (B26)."""
    waves = plan.num_prompts / plan.concurrency
    if waves < limits.fewest_waves:
        yield problem(
            Kind.TOO_FEW_PROMPTS,
            f"{plan.num_prompts} prompts at C={plan.concurrency} hardly leave a steady state",
            [f"num_prompts {plan.num_prompts}, at least {limits.fewest_waves * plan.concurrency:.0f} are needed"],
            invalid=False,
        )
    if plan.warmup_requests > plan.concurrency:
        message = (
            f"{plan.warmup_requests} warm-up requests at C={plan.concurrency}: older clients send them all at once"
        )
        yield problem(Kind.WARMUP_BURST, message, [f"warmup_requests {plan.warmup_requests}"], invalid=False)
    if sample.concurrency is None:
        return
    in_flight = min(plan.concurrency, plan.num_prompts)
    share = sample.concurrency / in_flight
    figures = [f"concurrency {sample.concurrency:.2f}, C {in_flight}, duration {sample.duration_s:.2f} s"]
    if share > 1 + limits.identity:
        message = f"mean concurrency {sample.concurrency:.2f} is above C={in_flight}"
        yield problem(Kind.CONCURRENCY, message, figures)
        return
    if in_flight == 1:
        least = limits.concurrency_alone
    elif waves >= limits.steady_waves:
        least = limits.concurrency_share
    else:
        least = limits.concurrency_few_waves
    if not share >= least:
        message = (
            f"mean concurrency {sample.concurrency:.2f} is far from C={in_flight}: the duration holds time without "
            "requests (a slow /server_info, a client that lags)"
        )
        yield problem(Kind.CONCURRENCY, message, figures)


def check_ttft(sample: Sample, plan: Plan, limits: Limits) -> Iterator[Problem]:
    """One TTFT far from the others. At C>1 the first C requests queue for their prefill and are left out (B20)."""
    if sample.ttfts_s:
        later = sample.ttfts_s[plan.concurrency if plan.concurrency > 1 else 0 :]
        if len(later) < 4:
            return
        median, worst = statistics.median(later), max(later)
    elif plan.concurrency == 1 and sample.median_ttft_ms is not None and sample.p99_ttft_ms is not None:
        median, worst = sample.median_ttft_ms / 1000, sample.p99_ttft_ms / 1000
    else:
        return
    excess = worst - median
    if worst > limits.ttft_factor * median and excess > limits.ttft_excess_s:
        share = excess / sample.duration_s if sample.duration_s > 0 else math.inf
        figures = [f"TTFT worst {worst:.3f} s, median {median:.3f} s, duration {sample.duration_s:.2f} s"]
        message = f"one request waited {worst:.2f} s for its first token, the median {median:.2f} s"
        yield problem(Kind.TTFT_OUTLIER, message, figures, invalid=share > limits.stall_share)


def check_pause(sample: Sample, limits: Limits) -> Iterator[Problem]:
    """A pause between two tokens of one request: a standstill too short for Little's law, and for the log where decode lines
    are far apart. Prompts of others are prefilled in between, so a pause of a few times the TTFT is no fault."""
    longest = sample.longest_itl_s
    if longest is None:
        return
    median, ttft = (sample.median_itl_ms or 0.0) / 1000, (sample.median_ttft_ms or 0.0) / 1000
    if longest > max(limits.stall_s, limits.stall_share * sample.duration_s, limits.ttft_factor * median, 3 * ttft):
        figures = [f"longest pause {longest:.2f} s; median ITL {median:.4f} s, median TTFT {ttft:.3f} s"]
        yield problem(Kind.STANDSTILL, f"a request got no token for {longest:.1f} s", figures)
