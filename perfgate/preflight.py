"""Says before anything is measured whether each point fits the server as it stands, and which setting to change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfgate.workload.plan import Plan

EAGER_BYTES_PER_TOKEN = 64 * 1024
"""Activations of one token outside CUDA graphs, a lower bound: 4 hyper-connection streams of 4096 in bf16, twice.

A bound for warning about an eager batch on a full GPU, no prediction of its memory.
"""


class Limit(StrEnum):
    """What a point can run into."""

    GRAPHS = "graphs"
    KV_POOL = "kv_pool"
    RUNNING = "running_requests"
    CONTEXT = "context"
    MEMORY = "free_memory"


@dataclass(frozen=True)
class ServerFacts:
    """What a ready server says about itself (``max_total_num_tokens=…`` line, capture lines, ``/server_info``).

    Tokens are counts, ``free_bytes`` GPU memory left after start. ``graph_batch_sizes`` are the captured decode batch
    sizes; None with the reason in ``no_graphs_because`` where none were captured or none are known. ``graph_bytes`` is
    what capturing them took. A field is None where the server did not say, which is reported and not taken for unlimited.
    """

    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    context_len: int | None = None
    graph_batch_sizes: tuple[int, ...] | None = None
    no_graphs_because: str = ""
    graphs_expected: bool = True
    free_bytes: int | None = None
    graph_bytes: int | None = None
    page_size: int = 1


@dataclass(frozen=True)
class Finding:
    """One limit for one point: what is needed, what there is, the setting to change. ``fits`` is None where unknown."""

    limit: Limit
    fits: bool | None
    needed: int
    available: int | None
    why: str
    setting: str = ""


@dataclass(frozen=True)
class Prediction:
    """What preflight expects of one point. Kept with the result, so that it can stand beside what happened."""

    concurrency: int
    findings: tuple[Finding, ...]

    @property
    def fits(self) -> bool:
        """True where no limit is known to be passed. An unknown limit fails no point; it is among ``unknown``."""
        return all(finding.fits is not False for finding in self.findings)

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The limits that the point passes."""
        return tuple(finding for finding in self.findings if finding.fits is False)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """The limits about which the server said nothing."""
        return tuple(finding for finding in self.findings if finding.fits is None)

    def beside(self, happened: str, ran: bool) -> str:
        """One line that sets the prediction beside the outcome; ``ran`` says whether the point gave a measurement."""
        expected = "fits" if self.fits else "; ".join(finding.why for finding in self.failing)
        agreed = "as predicted" if ran == self.fits else "against the prediction"
        return f"C={self.concurrency}: predicted {expected}; {happened} ({agreed})"


def predict(facts: ServerFacts, plans: Iterable[Plan]) -> tuple[Prediction, ...]:
    """Return one prediction a plan, in the plans' order."""
    return tuple(
        Prediction(
            plan.concurrency,
            (
                _graphs(facts, plan),
                _pool(facts, plan),
                _running(facts, plan),
                _context(facts, plan),
                _memory(facts, plan),
            ),
        )
        for plan in plans
    )


def _graphs(facts: ServerFacts, plan: Plan) -> Finding:
    asked = plan.concurrency
    if not facts.graphs_expected:
        return Finding(
            Limit.GRAPHS, True, asked, None, f"no graphs wanted: {facts.no_graphs_because or 'a CPU engine'}"
        )
    if not facts.graph_batch_sizes:
        if not facts.no_graphs_because:
            return Finding(Limit.GRAPHS, None, asked, None, "the server did not say which decode graphs it captured")
        why = f"no decode graph was captured ({facts.no_graphs_because}): every step runs eagerly"
        return Finding(Limit.GRAPHS, False, asked, 0, why, "--disable-cuda-graph must not be set; see the reason")
    largest = max(facts.graph_batch_sizes)
    if asked <= largest:
        fit = min(size for size in facts.graph_batch_sizes if size >= asked)
        padded = f", padded by {fit - asked} rows to the graph of {fit}" if fit > asked else ""
        return Finding(
            Limit.GRAPHS, True, asked, largest, f"within the largest captured decode graph, {largest}{padded}"
        )
    why = f"C={asked} is above the largest captured decode graph, {largest}: decode falls back to eager"
    setting = (
        f"--cuda-graph-max-bs (--cuda-graph-max-bs-decode) at least {asked}, and a lower --mem-fraction-static for it"
    )
    return Finding(Limit.GRAPHS, False, asked, largest, why, setting)


def _pool(facts: ServerFacts, plan: Plan) -> Finding:
    page = max(1, facts.page_size)
    each = -(-(plan.input_len + plan.output_len) // page) * page
    needed = plan.concurrency * each
    words = f"{plan.concurrency} x ({plan.input_len} + {plan.output_len}) tokens = {needed}"
    if facts.max_total_tokens is None:
        return Finding(Limit.KV_POOL, None, needed, None, f"{words}; the server did not say how many its KV pool holds")
    if needed <= facts.max_total_tokens:
        return Finding(Limit.KV_POOL, True, needed, facts.max_total_tokens, f"{words} of {facts.max_total_tokens}")
    why = f"{words} are more than the KV pool's {facts.max_total_tokens}: requests will be queued or retracted"
    return Finding(
        Limit.KV_POOL,
        False,
        needed,
        facts.max_total_tokens,
        why,
        "a higher --mem-fraction-static (or --max-total-tokens), shorter lengths, or more GPUs",
    )


def _running(facts: ServerFacts, plan: Plan) -> Finding:
    asked, limit = plan.concurrency, facts.max_running_requests
    if limit is None:
        return Finding(Limit.RUNNING, None, asked, None, "the server did not say how many requests run at once")
    if asked <= limit:
        return Finding(Limit.RUNNING, True, asked, limit, f"{asked} of {limit} running requests")
    why = f"C={asked} is above max_running_requests={limit}: the rest would wait in the queue"
    return Finding(Limit.RUNNING, False, asked, limit, why, f"--max-running-requests at least {asked}")


def _context(facts: ServerFacts, plan: Plan) -> Finding:
    needed, limit = plan.input_len + plan.output_len, facts.context_len
    if limit is None:
        return Finding(Limit.CONTEXT, None, needed, None, "the server did not say its context length")
    if needed <= limit:
        return Finding(Limit.CONTEXT, True, needed, limit, f"{needed} of {limit} tokens of context")
    why = (
        f"{plan.input_len} + {plan.output_len} tokens are more than the context of {limit}: the server refuses or cuts"
    )
    return Finding(Limit.CONTEXT, False, needed, limit, why, f"--context-length at least {needed}, or shorter lengths")


def _memory(facts: ServerFacts, plan: Plan) -> Finding:
    largest = max(facts.graph_batch_sizes or (0,))
    eager = facts.graphs_expected and plan.concurrency > largest
    needed = plan.concurrency * EAGER_BYTES_PER_TOKEN if eager else 0
    if facts.free_bytes is None:
        return Finding(Limit.MEMORY, None, needed, None, "the server did not say how much GPU memory is left")
    if facts.free_bytes > needed:
        return Finding(Limit.MEMORY, True, needed, facts.free_bytes, f"{facts.free_bytes} bytes of GPU memory left")
    why = f"{facts.free_bytes} bytes of GPU memory are left where at least {needed} are needed"
    return Finding(Limit.MEMORY, False, needed, facts.free_bytes, why, "a lower --mem-fraction-static")


def in_words(predictions: Sequence[Prediction]) -> list[str]:
    """One line a failing or unknown limit, with the setting to change, for the terminal and the report."""
    lines = []
    for prediction in predictions:
        for finding in (*prediction.failing, *prediction.unknown):
            change = f"; change: {finding.setting}" if finding.setting else ""
            lines.append(f"C={prediction.concurrency} {finding.limit}: {finding.why}{change}")
    return lines
