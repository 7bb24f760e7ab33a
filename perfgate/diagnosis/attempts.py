"""Looks across several starts of one recipe, where a single start's advice would go round in circles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.memory import NO_FRACTION

_TOO_HIGH = (Cause.GPU_OOM, Cause.GRAPH_CAPTURE_FAILED)


def across_starts(diagnoses: Sequence[Diagnosis]) -> Diagnosis:
    """Return the last start's diagnosis, with "no feasible fraction" as advice where a lower one was too low already.

    Diagnoses are in order of starting. That a KV cache did not fit at fraction f and the GPU ran out of memory before
    serving at f or above leaves nothing to try between them that either message would not undo. Raises ValueError
    when given none.
    """
    if not diagnoses:
        raise ValueError("across_starts needs the diagnosis of at least one start, got none")
    last = diagnoses[-1]
    low = [d for d in diagnoses if d.cause is Cause.STARTUP_KV_BUDGET]
    high = [d for d in diagnoses if d.cause is Cause.GPU_OOM and d.phase not in ("serving", "shutdown")]
    if last.cause not in (Cause.STARTUP_KV_BUDGET, *_TOO_HIGH) or not low or not high:
        return last
    floor = max(_fraction(d, 0.0) for d in low)
    ceiling = min(_fraction(d, 1.0) for d in high)
    if ceiling - floor > NEIGHBOURS:
        return last
    return replace(last, advice=NO_FRACTION, details={**last.details, "too_low": floor, "too_high": ceiling})


NEIGHBOURS = 0.02
"""Fractions this close leave no room between them: 1 GiB on an 80 GiB GPU is 0.0125."""


def _fraction(diagnosis: Diagnosis, missing: float) -> float:
    value = diagnosis.details.get("mem_fraction_static", missing)
    return float(value) if isinstance(value, int | float) else missing
