"""Decides by the client's side: it could not start, it was stopped, its server was gone, or it failed by itself."""

from __future__ import annotations

from perfgate.diagnosis.advice import exit_meaning
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.client import ClientFacts
from perfgate.diagnosis.endings import DEADLINE, died, tail
from perfgate.diagnosis.lines import seconds_between
from perfgate.diagnosis.scan import Scan

STALL_S = 20.0
"""The log went on this long after its last batch line: SGLang's own limit for an unanswered health check."""


def from_client(scan: Scan, client: ClientFacts, exit_code: int | None) -> Diagnosis | None:
    """Return what the client's output shows, None where it gave a result or was not given."""
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
        return died(
            scan,
            "stopped from outside",
            (scan.shutdown[1], *_errors(client)[:3]),
            "The server was told to stop (SIGTERM) while the client ran: find out by whom. Nothing is wrong"
            " with the server.",
        )
    if client.refused and (client.measured or scan.ready_line):
        return died(
            scan,
            "nothing listens any more",
            tuple([*tail(scan)[-2:], *_errors(client)[:4]]),
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
                *(tail(scan)[-2:] if hung else ()),
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
