"""What can be wrong with a sample, and the limits beyond which it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class ProblemKind(StrEnum):
    """What is wrong. docs/verdicts.md says what to do about each."""

    CLIENT_EXIT = "client_exit"
    REQUEST_ERROR = "request_error"
    INCOMPLETE = "incomplete"
    OUTPUT_LENGTH = "output_length"
    OUTPUT_SHORTFALL = "output_shortfall"
    INPUT_LENGTH = "input_length"
    NO_TEXT = "no_text"
    LATENCY = "latency"
    WRONG_RESULT = "wrong_result"
    INCONSISTENT = "inconsistent"
    CONCURRENCY = "concurrency"
    TOO_FEW_PROMPTS = "too_few_prompts"
    WARMUP_BURST = "warmup_burst"
    STANDSTILL = "standstill"
    ABOVE_LITTLE = "above_little"
    TTFT_OUTLIER = "ttft_outlier"
    SLOW_SERVER_INFO = "slow_server_info"
    COUNTERS = "counters"
    STRAY_REQUESTS = "stray_requests"
    STRAY_PREFILL = "stray_prefill"
    STRAY_CLIENT = "stray_client"
    PERIODIC_STRAY = "periodic_stray"
    HEALTH_PROBE = "health_probe"
    REQUESTS_MISSING = "requests_missing"
    FLUSH = "flush"
    CACHED_TOKENS = "cached_tokens"
    RETRACTION = "retraction"
    KV_FULL = "kv_full"
    QUEUED = "queued"
    JIT = "jit"
    GRAPH_OFF = "graph_off"
    SERVER_FAULT = "server_fault"
    UNREADABLE_LOG = "unreadable_log"
    ACCEPT_LENGTH = "accept_length"
    TOKENS_PER_CHUNK = "tokens_per_chunk"
    CLIENT_BOUND = "client_bound"
    FOREIGN_PROCESS = "foreign_process"
    THROTTLED = "throttled"
    CLOCKS = "clocks"
    CLOCK_STEPPED = "clock_stepped"
    UNWATCHED = "unwatched"
    PATCH_NOT_PROVED = "patch_not_proved"


MAX_EVIDENCE = 8
"""Lines of evidence kept of one problem; how many more there are is said."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a sample. ``invalid`` is False for a warning, which leaves the sample counted."""

    kind: ProblemKind
    message: str
    evidence: tuple[str, ...] = ()
    invalid: bool = True

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


def problem(kind: ProblemKind, message: str, evidence: Iterable[str] = (), invalid: bool = True) -> Problem:
    """A problem with its evidence cut to MAX_EVIDENCE lines."""
    lines = tuple(evidence)
    if len(lines) > MAX_EVIDENCE:
        lines = (*lines[: MAX_EVIDENCE - 1], f"... and {len(lines) - MAX_EVIDENCE + 1} more")
    return Problem(kind, message, lines, invalid)


@dataclass(frozen=True)
class Limits:
    """Where each check draws its line. Shares are of 1.

    ``little_share``: least share of C/TPOT; healthy runs show 0.69 to 0.86, stalled ones 0.02 to 0.07 (design).
    ``little_excess``: throughput may exceed C/mean TPOT by this factor: rounding, and the first token that TPOT omits.
    ``cached_share``: cached prompt tokens. ``input_share``: mean prompt length against the plan.
    ``retokenized_share``: below it the text was not generated; ``retokenized_warn``: below it worth a word (B19).
    ``concurrency_share``: least mean concurrency with at least 5 prompts for each request in flight, where the drain of
    the last wave alone leaves 0.8; ``concurrency_few_waves``: with fewer; ``concurrency_alone``: at C=1, without drain.
    ``steady_waves``: prompts a request in flight from which ``concurrency_share`` holds; below ``fewest_waves`` there
    is no steady state at all (B20).
    ``identity``: relative error of figures that follow from each other. ``client_cpu``: of one core (B21).
    ``accept_share``: difference in accept length (B23). ``clock_share``: how far clocks may lie apart, within a sample and
    between the samples of a point, and ``arms_share`` between the sides of an A/B (N11); ``clock_readings``: busy readings
    below which a point's clock is not known. ``stall_s``, ``stall_share``: a pause between two tokens or batch lines, in
    seconds and of the sample's duration, whichever is longer.
    """

    little_share: float = 0.4
    little_excess: float = 1.05
    cached_share: float = 0.02
    input_share: float = 0.02
    retokenized_share: float = 0.5
    retokenized_warn: float = 0.9
    concurrency_share: float = 0.75
    concurrency_alone: float = 0.95
    concurrency_few_waves: float = 0.4
    steady_waves: float = 5.0
    fewest_waves: float = 2.0
    identity: float = 0.02
    client_cpu: float = 0.9
    accept_share: float = 0.03
    clock_share: float = 0.05
    arms_share: float = 0.01
    clock_readings: int = 30
    stall_s: float = 1.0
    stall_share: float = 0.05
    server_info_s: float = 2.0
    ttft_factor: float = 10.0
    ttft_excess_s: float = 1.0


DEFAULT_LIMITS = Limits()
