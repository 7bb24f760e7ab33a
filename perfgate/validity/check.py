"""One sample, judged: every check in one place, in the order in which a reader would ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from perfgate.serverlog import ServerLog
from perfgate.validity import figures, host, load, prompts, serverside, traffic
from perfgate.validity.counters import check_counters
from perfgate.validity.problem import DEFAULT_LIMITS, Limits, Problem, ProblemKind
from perfgate.validity.runs import sample_window
from perfgate.workload import Plan, Sample


def check(
    sample: Sample,
    log: ServerLog | None,
    plan: Plan,
    counters: Mapping[str, float] | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    served_model_name: str | None = None,
) -> list[Problem]:
    """What is wrong with ``sample``; it counts when no problem is ``invalid``.

    ``log`` covers the client's run, or is a whole log, in which the run is looked for; None checks the figures alone.
    ``counters`` are differences of the server's counters over the run (default: the sample's own). The model's name is
    compared with ``served_model_name``, or with the log's. Raises nothing on a sample from ``read_sample``.
    """
    return _explained(list(_all(sample, log, plan, counters, limits, served_model_name)))


def _explained(found: list[Problem]) -> list[Problem]:
    """A server that admits fewer than C at once is far below C/TPOT without having stood still: what it did is slow, and
    has to show as that, so the standstill becomes a remark beside the queue."""
    if not any(p.kind is ProblemKind.QUEUED for p in found):
        return found
    return [replace(p, invalid=False) if p.kind is ProblemKind.STANDSTILL else p for p in found]


def _all(
    sample: Sample,
    log: ServerLog | None,
    plan: Plan,
    counters: Mapping[str, float] | None,
    limits: Limits,
    served_model_name: str | None,
) -> Iterator[Problem]:
    name = served_model_name or (log.facts.served_model_name if log else None)
    yield from figures.check_identity(sample, plan, name)
    yield from figures.check_completeness(sample, plan, limits)
    yield from figures.check_latency(sample, plan)
    yield from figures.check_arithmetic(sample, plan, limits)
    yield from load.check_little(sample, plan, limits)
    yield from load.check_concurrency(sample, plan, limits)
    yield from load.check_ttft(sample, plan, limits)
    yield from load.check_pause(sample, limits)
    deltas = counters if counters is not None else sample.counters
    if deltas is not None:
        yield from check_counters(sample, plan, deltas, limits)
    yield from host.check_host(sample, limits)
    if log is None:
        return
    yield from serverside.check_plugins(log)
    window = sample_window(log, sample, plan)
    yield from traffic.check_running(window.log, plan)
    yield from traffic.check_access(window, plan)
    yield from prompts.check_prefill(window, plan, limits)
    yield from serverside.check_events(window.log)
    yield from serverside.check_graphs(window.log)
    yield from serverside.check_queue(window.log, plan)
    yield from serverside.check_accept_length(window.log, sample, limits)
    yield from serverside.check_chunks(window.log)
    yield from serverside.check_gaps(window.log, sample, plan, limits)
    yield from serverside.check_server_info(window.log, sample, limits)
