"""Decides where the server's log shows no fault of its own: by deaths, the client's output and the exit code."""

from __future__ import annotations

from perfgate.diagnosis.advice import crashed_child, exit_meaning, unpatched
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.client import ClientFacts
from perfgate.diagnosis.faults import plugin_hits
from perfgate.diagnosis.lines import seconds_between
from perfgate.diagnosis.scan import Hit, Scan

DEADLINE = 124
"""What ``timeout`` and this suite give for a process that was stopped at its deadline."""
STALL_S = 20.0
"""The log went on this long after its last batch line: SGLang's own limit for an unanswered health check."""
_DEATHS = ("native", "subprocess", "sigquit")


def without_a_root(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis:
    """Return the diagnosis for a log without a named fault."""
    for decide in (_death, _client, _plugin, _exit, _retraction):
        if diagnosis := decide(scan, client, exit_code):
            return diagnosis
    return Diagnosis(Cause.NONE, phase=scan.phase, advice="Nothing failed that the log, exit code or client shows.")


def _died(scan: Scan, reason: str, evidence: tuple[str, ...], advice: str, hit: Hit | None = None) -> Diagnosis:
    return Diagnosis(
        Cause.SERVER_DIED,
        evidence=evidence,
        advice=advice,
        first_rank=hit.rank if hit else None,
        reason=reason,
        phase=hit.phase if hit else scan.phase,
        fatal=True,
        line_no=hit.line_no if hit else None,
        uptime_s=seconds_between(scan.first_stamp, hit.stamp if hit else scan.last_stamp),
        details={"message": hit.rule.name if hit else "exit"},
    )


def _tail(scan: Scan) -> tuple[str, ...]:
    return tuple(line for _, line in scan.tail)


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
    evidence = tuple(dict.fromkeys([*(_tail(scan) if plugin else ()), *(hit.text for hit in hits[:4])]))
    return _died(scan, meaning or hits[0].body.strip()[:400], evidence, advice, hits[0])


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


def _client(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    failed = client.failed or (client.given and exit_code not in (None, 0))
    if not failed:
        return None
    if client.substituted or (client.tokenizer and not client.measured and not client.table):
        return Diagnosis(
            Cause.CLIENT_TOKENIZER,
            evidence=tuple(client.tokenizer[:4]) or (client.last_line,),
            reason=(client.tokenizer or [client.last_line])[-1].strip()[:400],
            advice="The client could not load the model's tokenizer: update transformers in the client's"
            " environment or give"
            " --tokenizer the model's own files. Never substitute another tokenizer: lengths would not be what"
            " was asked.",
            phase=scan.phase,
            fatal=True,
        )
    if scan.shutdown and (client.refused or client.broken or client.final):
        return _died(
            scan,
            "stopped from outside",
            (scan.shutdown[1], *_errors(client)[:3]),
            "The server was told to stop (SIGTERM) while the client ran: find out by whom. Nothing is wrong"
            " with the server.",
        )
    if client.refused and (client.measured or scan.ready_line):
        return _died(
            scan,
            "nothing listens any more",
            tuple([*_tail(scan)[-2:], *_errors(client)[:4]]),
            "The server was gone in mid-run and its log ends without a reason: killed from outside (SIGKILL,"
            " the kernel's"
            " out-of-memory killer) is the usual one. Check the host's kernel log.",
        )
    return _stopped_client(scan, client, exit_code) or _failed_client(scan, client, exit_code)


def _errors(client: ClientFacts) -> list[str]:
    lines = [*client.errors, *client.broken, *client.refused, *client.not_ready, client.final]
    return list(dict.fromkeys(line for line in lines if line))


def _stopped_client(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    """The client came to an end without an error of its own: somebody stopped it, or the deadline did."""
    interrupted = "KeyboardInterrupt" in client.final
    if (client.final and not interrupted) or client.not_ready or client.broken or client.table:
        return None
    stalled = seconds_between(scan.last_batch_stamp, scan.last_stamp) or 0.0
    compiling = scan.facts.jit_line_no > scan.last_batch_line and scan.facts.jit_line is not None
    progress = f"{client.done} of {client.total} requests done" if client.total else "no request done"
    deadline = exit_code == DEADLINE
    hung = (deadline or stalled >= STALL_S) and not compiling and not interrupted
    evidence = tuple(
        dict.fromkeys(
            [
                *([scan.facts.jit_line] if compiling and scan.facts.jit_line else []),
                *([client.progress_line] if client.progress_line else [client.last_line]),
                *(_tail(scan)[-2:] if hung else ()),
            ]
        )
    )
    details = {"done": client.done, "total": client.total, "stalled_s": stalled, "compiling": compiling}
    if hung:
        return Diagnosis(
            Cause.HANG_NO_PROGRESS,
            evidence=evidence,
            reason=f"{progress}, then no tokens",
            advice=f"The run stopped advancing with {progress}; a server that answers /health is not alive for"
            f" that. Keep it until"
            " its watchdog writes a stack dump. A first run of new shapes may only be compiling kernels (20-50"
            " s a shape,"
            " without a log line): warm up with the point's own shapes.",
            phase=scan.phase,
            fatal=True,
            details=details,
        )
    return Diagnosis(
        Cause.CLIENT_FAILED,
        evidence=evidence,
        reason=f"the client was stopped with {progress}",
        advice=f"The client was stopped before it had a result ({progress}); it shows no error of its own. If"
        f" nobody stopped it on"
        " purpose, the server was still compiling kernels for a new shape: warm up with the point's own shapes"
        " and allow more"
        " time.",
        phase=scan.phase,
        fatal=True,
        details=details,
    )


def _failed_client(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis:
    errors = _errors(client)
    server = [scan.first_error[1]] if scan.first_error else []
    text = "The client ended without a result; read its first error."
    if client.not_ready:
        text = (
            "Nothing answered at the URL within the client's waiting time: start the server first, or"
            " correct host and port."
        )
    elif "IndexError" in client.final and client.measured:
        text = (
            "All requests failed after warm-up, so the client had no latency to take a percentile of; this"
            " is no fault in it."
        )
    elif client.measured and client.broken and (client.done is None or client.done == client.total):
        text = (
            "The client failed after the measured phase, while it asked for /server_info; the sample is"
            " lost, take it again."
        )
    elif client.measured and client.broken:
        text = "The server broke connections in mid-run. Its log says nothing; check that the process lives."
    elif client.table:
        text = (
            f"The client printed its table and then failed ({exit_meaning(exit_code or 1)}): its result does not count."
        )
    return Diagnosis(
        Cause.CLIENT_FAILED,
        evidence=tuple([*server, *errors[:5]]) or (client.last_line,),
        reason=(client.final or (errors or [client.last_line])[0]).strip()[:400],
        advice=text,
        phase=scan.phase,
        fatal=True,
        details={"done": client.done, "total": client.total},
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
            evidence=_tail(scan),
            reason=f"stopped at its deadline during {scan.phase}",
            advice=f"The server was not ready in time (last seen: {scan.phase}). Kernels that compile on a"
            f" first start take"
            " minutes: keep the caches, or raise the deadline; else read where the log stands still.",
            phase=scan.phase,
            fatal=True,
        )
    meaning = exit_meaning(exit_code) if exit_code else "ended with a traceback"
    evidence = tuple(dict.fromkeys([*_tail(scan), *([crashed.exceptions[-1][1]] if reason and crashed else [])]))
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
    return _died(scan, reason[:400] or meaning, evidence, advice)


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
