"""Turns the messages that a scan found into faults, in the order in which they happened."""

from __future__ import annotations

from dataclasses import dataclass

from perfgate.diagnosis.cause import Cause
from perfgate.diagnosis.health import LONG_GAP_S, heartbeat_gap_s
from perfgate.diagnosis.rules import Strength
from perfgate.diagnosis.scan import Hit, Scan, Traceback


@dataclass(frozen=True)
class Fault:
    """One fault. ``position`` is the line it began at: for an exception in a traceback, the traceback's own header.

    ``wrapper`` marks the end of a process, which shares its position with the message that stands in its traceback.
    """

    cause: Cause
    rule: str
    position: int
    hit: Hit
    rank: str | None
    phase: str
    reason: str
    traceback: Traceback | None
    wrapper: bool = False


def faults(scan: Scan) -> list[Fault]:
    """Return the faults by position; empty where the log shows no fault of its own."""
    found = []
    for hit in scan.hits:
        if hit.after_shutdown or _in_plugin(hit.traceback):
            continue
        fault = _fault(hit, scan)
        if fault:
            found.append(fault)
    found.sort(key=lambda fault: (fault.position, fault.wrapper, fault.hit.line_no))
    return found


def _fault(hit: Hit, scan: Scan) -> Fault | None:
    name = hit.rule.name
    if name in ("exception", "warmup"):
        return _exception(hit, scan)
    if name == "leak":
        # The check may only warn; it raised where nothing was served any more, or where it stands as an exception.
        raised = hit.traceback is not None or hit.body.startswith("ValueError") or scan.last_batch_line < hit.line_no
        return _plain(hit, hit.rule.cause) if raised else None
    if name == "health":
        return _plain(hit, Cause.HANG_NO_PROGRESS) if _hung(hit, scan) else None
    if hit.strength is not Strength.ROOT:
        return None
    if hit.handled and scan.last_batch_line > hit.line_no:
        return None
    return _plain(hit, hit.rule.cause)


def _plain(hit: Hit, cause: Cause) -> Fault:
    traceback = hit.traceback
    owned = traceback is not None and traceback.owner in ("exception", "warmup")
    return Fault(
        cause=cause,
        rule=hit.rule.name,
        position=traceback.line_no if traceback and owned else hit.line_no,
        hit=hit,
        rank=hit.rank or (traceback.rank if traceback else None),
        phase=_phase(hit, traceback),
        reason=_reason(hit.body),
        traceback=traceback,
    )


def _exception(hit: Hit, scan: Scan) -> Fault | None:
    """An exception that ended a process: what it was depends on what the process was doing."""
    traceback = next((t for t in scan.tracebacks if t.line_no == hit.line_no), None)
    phase = _phase(hit, traceback)
    cause, rule = hit.rule.cause, hit.rule.name
    if traceback:
        if phase == "graph capture":
            cause, rule = Cause.GRAPH_CAPTURE_FAILED, "capture"
        elif phase == "weights" or (phase != "serving" and "weights" in traceback.flags):
            cause, rule = Cause.WEIGHT_LOAD_FAILED, "weights"
    reason = traceback.exceptions[0][2] if traceback and traceback.exceptions else hit.body
    return Fault(cause, rule, hit.line_no, hit, hit.rank, phase, _reason(reason), traceback, wrapper=True)


def _phase(hit: Hit, traceback: Traceback | None) -> str:
    if hit.rule.name == "capture" or "graph failed:" in hit.body:
        return "graph capture"
    if hit.phase != "serving" and traceback and "capture" in traceback.flags:
        return "graph capture"
    return hit.phase


def _hung(hit: Hit, scan: Scan) -> bool:
    """A failed health check counts where no batch line follows it; a long silence does even if the server came back."""
    gap = heartbeat_gap_s(hit.body)
    return scan.last_batch_line < hit.line_no or (gap is not None and gap >= LONG_GAP_S)


def _reason(body: str) -> str:
    return body.strip()[:400]


def _in_plugin(traceback: Traceback | None) -> bool:
    return traceback is not None and traceback.owner == "plugin"


def plugin_hits(scan: Scan) -> list[Hit]:
    """The lines with which SGLang logs a plug-in that it could not load, run or apply."""
    return [hit for hit in scan.hits if hit.rule.name == "plugin" and not hit.after_shutdown]


def warnings(scan: Scan) -> tuple[str, ...]:
    """Lines that look like faults and were not, a handful: soft watchdogs, short silences, handled messages."""
    counted = {fault.hit.text for fault in faults(scan)}
    lines = [hit.text for hit in scan.hits if hit.text not in counted and hit.rule.name not in ("plugin", "sigquit")]
    return tuple(dict.fromkeys(lines))[:8]
