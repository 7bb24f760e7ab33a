"""What the ends of a run have in common: a server that is gone, and the last lines it wrote."""

from __future__ import annotations

from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.lines import seconds_between
from perfgate.diagnosis.scan import Hit, Scan

DEADLINE = 124
"""What ``timeout`` and this suite give for a process that was stopped at its deadline."""


def died(scan: Scan, reason: str, evidence: tuple[str, ...], advice: str, hit: Hit | None = None) -> Diagnosis:
    """A SERVER_DIED diagnosis, of a message or of the process's end alone."""
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


def tail(scan: Scan) -> tuple[str, ...]:
    """The last lines of the log that are not batch or access lines."""
    return tuple(line for _, line in scan.tail)
