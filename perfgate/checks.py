"""What is checked once a run beside the points: start-up, capacity, graphs, and the physics over all points (pure)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perfgate import environment, physics, preflight
from perfgate.recipe import Recipe
from perfgate.result import CheckResult, Outcome, PointResult


@dataclass(frozen=True)
class ServerFacts:
    """What a started server says of itself. ``start_seconds`` is None where this run did not start it, and ``environ``,
    the environment that it was started in, too."""

    start_seconds: float | None = None
    owned: bool = True
    environ: Mapping[str, str] | None = None
    capacity: preflight.ServerFacts = field(default_factory=preflight.ServerFacts)


def weakest(starts: Sequence[ServerFacts]) -> ServerFacts | None:
    """What holds of every server start of a run: the longest start, the smallest pool, the fewest graphs. None without one.

    A value that some starts do not say is taken from those that do; graphs that a start did not capture are none.
    """
    if not starts:
        return None
    said = [facts.capacity for facts in starts]
    fewest = min(said, key=lambda c: max(c.graph_batch_sizes or (0,)))
    capacity = dataclasses.replace(
        fewest,
        max_total_tokens=_known(min, [c.max_total_tokens for c in said]),
        max_running_requests=_known(min, [c.max_running_requests for c in said]),
        context_len=_known(min, [c.context_len for c in said]),
        free_bytes=_known(min, [c.free_bytes for c in said]),
        graph_bytes=_known(max, [c.graph_bytes for c in said]),
    )
    slowest = max((f.start_seconds for f in starts if f.start_seconds is not None), default=None)
    return dataclasses.replace(starts[-1], start_seconds=slowest, capacity=capacity)


def _known(pick: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return pick(known) if known else None


def all_checks(recipe: Recipe, facts: ServerFacts | None, points: Sequence[PointResult]) -> list[CheckResult]:
    """Every check of a run. Without a server there are no facts, and the checks that need them are MISSING."""
    if facts is None:
        names = ["start-up time", "KV capacity", "graph memory", "environment"]
        names += [f"decode graphs C={p.concurrency}" for p in points]
        found = [CheckResult(name=name, outcome=Outcome.MISSING, why="no server came up") for name in names]
    else:
        found = [
            start_up(recipe, facts),
            kv_capacity(recipe, facts),
            graph_memory(recipe, facts),
            surroundings(recipe, facts),
        ]
        found += [graph_coverage(recipe, facts, p.concurrency) for p in points]
    return found + physics.check(recipe, points)


def start_up(recipe: Recipe, facts: ServerFacts) -> CheckResult:
    """Seconds from the process's start to the proved server, against the recipe's bound."""
    name, bound = "start-up time", recipe.limits.max_startup_seconds
    if facts.start_seconds is None:
        why = "the server was not started by this run" if not facts.owned else "the start was not timed"
        outcome = Outcome.PASS if not facts.owned else Outcome.MISSING
        return CheckResult(name=name, outcome=outcome, bound=bound, unit="s", why=why)
    good = bound is None or facts.start_seconds <= bound
    why = "" if good else f"{facts.start_seconds:.0f} s, at most {bound:.0f} s allowed (limits.max_startup_seconds)"
    outcome = Outcome.PASS if good else Outcome.REGRESSION
    return CheckResult(name=name, outcome=outcome, value=facts.start_seconds, bound=bound, unit="s", why=why)


def kv_capacity(recipe: Recipe, facts: ServerFacts) -> CheckResult:
    """Tokens in the KV pool, against the recipe's bound and what its largest point needs at once."""
    work = recipe.workload
    needed = max(recipe.concurrencies) * (work.input_len + work.output_len)
    bound = max(needed, recipe.limits.min_kv_tokens or 0)
    tokens = facts.capacity.max_total_tokens
    if tokens is None:
        return CheckResult(
            name="KV capacity",
            outcome=Outcome.MISSING if facts.owned else Outcome.PASS,
            bound=bound,
            unit="tokens",
            why="the server does not say how many tokens its KV pool holds",
        )
    good = tokens >= bound
    why = "" if good else f"{tokens} tokens, {bound} wanted; raise mem_fraction_static or max_total_tokens"
    outcome = Outcome.PASS if good else Outcome.REGRESSION
    return CheckResult(name="KV capacity", outcome=outcome, value=tokens, bound=bound, unit="tokens", why=why)


def graph_memory(recipe: Recipe, facts: ServerFacts) -> CheckResult:
    """GiB that the captured graphs took, against the recipe's bound: what they take, the KV pool lacks."""
    name, bound = "graph memory", recipe.limits.max_graph_gib
    used = facts.capacity.graph_bytes
    if used is None:
        why = recipe.graphs_reason or "the server's log does not say what its graphs took"
        outcome = Outcome.MISSING if bound is not None and facts.owned else Outcome.PASS
        return CheckResult(name=name, outcome=outcome, bound=bound, unit="GiB", why=why)
    value = used / 2**30
    good = bound is None or value <= bound
    why = "" if good else f"{value:.2f} GiB, at most {bound:g} allowed (limits.max_graph_gib); capture fewer sizes"
    outcome = Outcome.PASS if good else Outcome.REGRESSION
    return CheckResult(name=name, outcome=outcome, value=round(value, 3), bound=bound, unit="GiB", why=why)


def surroundings(recipe: Recipe, facts: ServerFacts) -> CheckResult:
    """Whether the server's environment sends it past the kernels that the recipe is about, or slows it on purpose."""
    name = "environment"
    if facts.environ is None:
        return CheckResult(name=name, outcome=Outcome.PASS, why="not visible on a server that this run did not start")
    found = environment.spoilt(recipe, facts.environ)
    return CheckResult(name=name, outcome=Outcome.INVALID if found else Outcome.PASS, why="; ".join(found))


def graph_coverage(recipe: Recipe, facts: ServerFacts, concurrency: int) -> CheckResult:
    """Whether a decode step of ``concurrency`` requests runs from a captured graph."""
    name = f"decode graphs C={concurrency}"
    sizes = facts.capacity.graph_batch_sizes
    if not sizes:
        if recipe.graphs_reason:
            return CheckResult(name=name, outcome=Outcome.PASS, why=f"none expected: {recipe.graphs_reason}")
        if not facts.owned:
            return CheckResult(
                name=name, outcome=Outcome.PASS, why="not visible on a server that this run did not start"
            )
        why = "no graphs were captured, and the recipe gives no graphs_reason; decode would run eagerly"
        return CheckResult(name=name, outcome=Outcome.INVALID, why=why)
    largest = max(sizes)
    good = concurrency <= largest
    why = (
        f"captured sizes {_span(sizes)}"
        if good
        else f"captured sizes end at {largest}; raise cuda_graph_max_bs_decode to {concurrency}, or this point runs eagerly"
    )
    outcome = Outcome.PASS if good else Outcome.INVALID
    return CheckResult(name=name, outcome=outcome, value=largest, bound=concurrency, unit="requests", why=why)


def _span(sizes: Sequence[int]) -> str:
    ordered = sorted(sizes)
    return (
        ", ".join(map(str, ordered)) if len(ordered) <= 8 else f"{ordered[0]} to {ordered[-1]} ({len(ordered)} sizes)"
    )
