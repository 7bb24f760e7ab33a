"""Whether a time was taken at the clock that it is compared at, or recorded for (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfgate.kernelbench.bars import Cell
from perfgate.kernelbench.rows import Row, Run

LEAST_SHARE = 0.97
"""SM clocks closer than this are taken to be one clock; a kernel's time moves by as much as its clock at most."""


def highest(row: Row, fingerprint: Mapping[str, Any]) -> int | None:
    """The highest SM clock of the card in MHz, as it was read beside the row's or stands in the fingerprint."""
    known = row.top_mhz or fingerprint.get("hardware", {}).get("gpu_max_sm_mhz")
    return known if isinstance(known, int) else None


def fault(row: Row, wanted_mhz: int | None, words: str) -> str:
    """Why a row's time does not count at ``wanted_mhz``, or nothing. ``words`` say whose clock that is.

    None: no clock is known to compare with. A clock above the wanted one is as wrong as one below it: it hides a loss.
    """
    if row.throttled:
        return f"throttled while it was timed: {', '.join(row.throttled)}"
    if row.sm_mhz is None:
        return "its SM clock was not read while it was timed"
    if wanted_mhz and not LEAST_SHARE <= row.sm_mhz / wanted_mhz <= 1 / LEAST_SHARE:
        return f"timed at {row.sm_mhz} MHz, {words} {wanted_mhz} MHz"
    return ""


def spoilt(run: Run) -> dict[Cell, str]:
    """The rows of a run whose time says nothing about the card at its highest clock, each with the reason."""
    found = {}
    for row in run.rows:
        if why := fault(row, highest(row, run.fingerprint), "and the card's highest is"):
            found[row.shape, row.implementation] = why
    return found
