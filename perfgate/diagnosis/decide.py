"""Chooses the cause: the first fault by position in the file, told apart from its cascade and from noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfgate.diagnosis import advice, sizes
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.client import ClientFacts, read_client
from perfgate.diagnosis.fallback import without_a_root
from perfgate.diagnosis.faults import Fault, faults, plugin_hits, warnings
from perfgate.diagnosis.lines import seconds_between
from perfgate.diagnosis.scan import Scan, Scanner
from perfgate.diagnosis.story import evidence


def diagnose(
    log: str, exit_code: int | None = None, client_output: str = "", concurrency: int | None = None
) -> Diagnosis:
    """Name why a measurement failed, from one server start's log, an exit code and the client's output.

    ``log`` is the server's log as text, any SGLang version from 0.4.1, with or without rank prefixes, progress bars and
    foreign lines. ``exit_code`` is the client's where ``client_output`` is given, else the server's; negative or above
    128 for a signal, 124 where the process was stopped at its deadline, None where it still runs or is not known.
    ``concurrency`` is how many requests the lost measurement kept in flight; where it is not given, what the client's
    output says it was asked for.

    The first fault by position in the file among all ranks is the cause; what follows it is its cascade. A fault after
    shutdown began, in SGLang's suggestions, in echoed arguments or prompts, or one that its own line says was handled,
    does not count. Causes that only the client's side shows come after those of the server's log. NONE is returned only
    where neither the log, the exit code nor the client's output shows a failure. Never raises on any text.
    """
    scan = Scanner().read(log)
    client = read_client(client_output)
    found = faults(scan)
    diagnosis = _from_fault(found, scan, client, concurrency) if found else without_a_root(scan, client, exit_code)
    return _with_plugins(replace(diagnosis, warnings=warnings(scan)), scan)


def _from_fault(found: list[Fault], scan: Scan, client: ClientFacts, concurrency: int | None) -> Diagnosis:
    first = found[0]
    asked, limit = sizes.asked_and_limit(first.hit.body)
    details: dict[str, Any] = {"message": first.rule, "ranks": _ranks(found, first.cause)}
    if asked_for := concurrency or client.numbers.get("max_concurrency"):
        details["asked_concurrency"] = asked_for
    wanted = available = None
    for _, line in scan.token_lines if first.cause is Cause.KV_POOL_EXHAUSTED else []:
        wanted = wanted if wanted is not None else sizes.wanted_tokens(line)
        available = available if available is not None else sizes.available_tokens(line)
    diagnosis = Diagnosis(
        cause=first.cause,
        evidence=evidence(first, found, scan),
        first_rank=first.rank,
        reason=first.reason,
        phase=first.phase,
        fatal=True,
        line_no=first.position,
        wanted_tokens=wanted,
        available_tokens=available,
        bytes_asked=asked,
        bytes_limit=limit,
        uptime_s=seconds_between(scan.first_stamp, first.hit.stamp),
        details=details,
    )
    return advice.add(diagnosis, first, found, scan)


def _ranks(found: list[Fault], cause: Cause) -> tuple[str, ...]:
    ranks: dict[str, None] = {}
    for fault in found:
        if fault.cause is cause and fault.rank:
            ranks.setdefault(fault.rank)
    return tuple(ranks)


def _with_plugins(diagnosis: Diagnosis, scan: Scan) -> Diagnosis:
    """A plug-in that failed left the server unpatched: never the fault itself, never to be passed over either."""
    hits = plugin_hits(scan)
    if not hits or diagnosis.details.get("message") == "plugin":
        return diagnosis
    lines = tuple(hit.text for hit in hits[:3])
    return replace(
        diagnosis,
        evidence=diagnosis.evidence + tuple(line for line in lines if line not in diagnosis.evidence),
        advice=f"{diagnosis.advice} {advice.unpatched(hits)}",
    )
