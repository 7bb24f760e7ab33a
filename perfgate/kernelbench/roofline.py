"""The least time that a piece of work takes at given rates: Williams, Waterman and Patterson 2009 (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from perfgate.kernelbench.shapes import Kind, Work


@dataclass(frozen=True)
class Rates:
    """Bytes and FLOPs a second. ``fp8`` and ``tf32`` are None where they were not measured: bf16's bounds then.

    ``bytes`` is the fastest copy's, ``copies`` has each by its name, ``copy_fault`` why one is missing.
    ``floor_us``: what timing a graph of one kernel that does nothing gives, a time that no kernel gets below.
    """

    bytes: float
    bf16: float
    fp8: float | None = None
    tf32: float | None = None
    floor_us: float = 0.0
    source: str = ""
    copies: Mapping[str, float] = field(default_factory=dict)
    copy_fault: str = ""

    def flops(self, kind: Kind) -> float:
        """The matrix rate that bounds FLOPs of this kind."""
        measured = {"bf16": self.bf16, "fp8": self.fp8, "tf32": self.tf32}[kind]
        return measured or self.bf16


RTX_PRO_6000 = Rates(
    bytes=1.5e12,
    bf16=503.8e12,
    fp8=1007.6e12,
    tf32=251.9e12,
    source="1.5 TB/s and NVIDIA's dense figures for the RTX PRO 6000 (188 multiprocessors at 2.617 GHz); nothing measured",
)
"""For predictions on sm_120 alone."""


def least_us(work: Work, rates: Rates) -> float:
    """Microseconds that the work takes at least: its bytes or its FLOPs, whichever takes longer."""
    return 1e6 * max(work.bytes / rates.bytes, work.flops / rates.flops(work.kind))


def limit(work: Work, rates: Rates) -> str:
    """What bounds the work at these rates: ``bytes`` or ``flops``."""
    return "bytes" if work.bytes / rates.bytes >= work.flops / rates.flops(work.kind) else "flops"


def restore(stored: Mapping[str, Any]) -> Rates:
    """The rates of a stored run. Raises ValueError where they are not positive numbers."""
    rates = Rates(**{one.name: stored[one.name] for one in fields(Rates) if one.name in stored})
    if not (rates.bytes > 0 and rates.bf16 > 0):
        raise ValueError(f"rates must be above 0, got {rates}")
    return rates
