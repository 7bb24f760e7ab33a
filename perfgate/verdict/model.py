"""The verdict on one point."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perfgate.result import MetricResult, Outcome
from perfgate.verdict.compare import Comparison


@dataclass(frozen=True)
class Verdict:
    """What one point came to, and what to do about it.

    ``samples_needed``: how many samples (or pairs) would settle an INCONCLUSIVE point, of this run or on each side, or
    would show how many do, as ``why`` says; None where no number would.
    ``comparisons`` hold the figures behind ``metrics`` (standard errors, thresholds); empty where nothing was compared.
    ``passes`` is False for NO_BASELINE unless the run is recording.
    """

    concurrency: int | None
    outcome: Outcome
    why: str
    metrics: tuple[MetricResult, ...] = ()
    samples_needed: int | None = None
    advice: str = ""
    judged_by: Literal["baseline", "smoke", "ab", "recording", "nothing"] = "nothing"
    comparisons: tuple[Comparison, ...] = field(default=(), repr=False)
    recording: bool = False

    @property
    def passes(self) -> bool:
        """True where this point lets the change through."""
        return self.outcome.passes or (self.recording and self.outcome is Outcome.NO_BASELINE)
