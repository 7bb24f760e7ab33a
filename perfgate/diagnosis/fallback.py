"""Decides where the server's log shows no fault of its own: by deaths, the client's output and the exit code."""

from __future__ import annotations

from perfgate.diagnosis.advice import crashed_child, exit_meaning, unpatched
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.client import ClientFacts
from perfgate.diagnosis.client_side import from_client
from perfgate.diagnosis.endings import DEADLINE, died, tail
from perfgate.diagnosis.faults import plugin_hits
from perfgate.diagnosis.scan import Scan

_DEATHS = ("native", "subprocess", "sigquit")


def without_a_root(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis:
    """Return the diagnosis for a log without a named fault."""
    for decide in (_death, from_client, _plugin, _exit, _retraction):
        if diagnosis := decide(scan, client, exit_code):
            return diagnosis
    return Diagnosis(Cause.NONE, phase=scan.phase, advice="Nothing failed that the log, exit code or client shows.")


def _death(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    hits = [hit for hit in scan.hits if hit.rule.name in _DEATHS and not hit.after_shutdown]
    if not hits:
        return None
    plugin = _stopped_by_plugin(scan)
    meaning = next(filter(None, (crashed_child(hit.text) for hit in hits)), "")
    advice = plugin or (
        f"A server process ended without a reason in the log{f': {meaning}' if meaning else ''}. Check the"
        f" host's memory and its"
        " kernel log; points before that line stand, later ones were not run."
    )
    evidence = tuple(dict.fromkeys([*(tail(scan) if plugin else ()), *(hit.text for hit in hits[:4])]))
    return died(scan, meaning or hits[0].body.strip()[:400], evidence, advice, hits[0])


def _stopped_by_plugin(scan: Scan) -> str:
    """SystemExit is the one exception of a plug-in that SGLang does not catch: loaded, never executed, process gone."""
    if scan.ready_line:
        return ""
    names = [name for name in scan.facts.plugins_loaded if name not in scan.facts.plugins_executed]
    if not names:
        return ""
    return (
        f"The plug-in {names[0]} was loaded and did not come back: it stopped the server on purpose"
        f" (SystemExit). Its own message"
        " is in the evidence; a patch that refuses this version or model is the usual reason."
    )


def _plugin(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    """UNKNOWN: none of the causes says "alive and unpatched", and the server's speed is then not the patch's."""
    hits = plugin_hits(scan)
    if not hits:
        return None
    reasons = [text for t in scan.tracebacks if t.owner == "plugin" for _, _, text in t.exceptions]
    lines = [line for t in scan.tracebacks if t.owner == "plugin" for line in (t.head, *(e[1] for e in t.exceptions))]
    return Diagnosis(
        Cause.UNKNOWN,
        evidence=tuple(dict.fromkeys(lines or [hit.text for hit in hits]))[:6],
        advice=unpatched(hits),
        first_rank=hits[0].rank,
        reason=(reasons or [hits[0].body])[0].strip()[:400],
        phase=hits[0].phase,
        fatal=True,
        line_no=hits[0].line_no,
        details={"message": "plugin"},
    )


def _exit(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    crashed = scan.tracebacks[-1] if scan.tracebacks and not scan.tracebacks[-1].owner else None
    at_the_end = crashed is not None and bool(crashed.exceptions) and crashed.exceptions[-1][0] >= scan.lines - 3
    if exit_code in (None, 0):
        if not (at_the_end and crashed) or scan.ready_line or scan.shutdown:
            return None
    elif scan.shutdown and not client.given:
        return None
    reason = crashed.exceptions[-1][2].strip() if crashed and crashed.exceptions else ""
    if exit_code == DEADLINE:
        return Diagnosis(
            Cause.HANG_NO_PROGRESS,
            evidence=tail(scan),
            reason=f"stopped at its deadline during {scan.phase}",
            advice=f"The server was not ready in time (last seen: {scan.phase}). Kernels that compile on a"
            f" first start take"
            " minutes: keep the caches, or raise the deadline; else read where the log stands still.",
            phase=scan.phase,
            fatal=True,
        )
    meaning = exit_meaning(exit_code) if exit_code else "ended with a traceback"
    evidence = tuple(dict.fromkeys([*tail(scan), *([crashed.exceptions[-1][1]] if reason and crashed else [])]))
    plugin = _stopped_by_plugin(scan)
    shown = scan.recognised or bool(plugin) or bool(reason) or (exit_code or 0) < 0 or (exit_code or 0) > 128
    if not shown:
        return Diagnosis(
            Cause.UNKNOWN,
            evidence=evidence,
            reason=meaning,
            advice=f"The process ended ({meaning}) and its output names no reason; run the command by hand. A"
            f" plug-in that stops"
            " the server with SystemExit leaves no more than its own message.",
            phase=scan.phase,
            fatal=True,
        )
    advice = plugin or (
        f"The server ended ({meaning}) and the log names no reason"
        + (f" but {reason[:200]}" if reason else "")
        + ". Read the last lines; check the host's kernel log for its out-of-memory killer. A plug-in that"
        " raises SystemExit"
        " ends the server so, with no more than its own message."
    )
    return died(scan, reason[:400] or meaning, evidence, advice)


def _retraction(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    """Requests were put back: nothing died, and nothing measured over it counts."""
    hits = [hit for hit in scan.hits if hit.rule.name == "retraction" and not hit.after_shutdown]
    if not hits:
        return None
    return Diagnosis(
        Cause.KV_POOL_EXHAUSTED,
        evidence=tuple(dict.fromkeys(hit.text for hit in hits))[:5],
        advice="The KV pool was full and requests were put back: this concurrency and these lengths do not fit"
        " it. Raise"
        " --mem-fraction-static (or --max-total-tokens), or lower --max-running-requests; the point does not count.",
        first_rank=hits[0].rank,
        reason=hits[0].body.strip()[:400],
        phase=hits[0].phase,
        fatal=False,
        line_no=hits[0].line_no,
        details={"message": "retraction", "retractions": scan.counts["retraction"]},
    )
