"""Throughput with speculation: shown at the baseline's accept length, and gated only for what the steps do not explain.

Time per verify step gates. At an equal accept length it sets tokens/s too, but for what passes between steps: prefill,
scheduling, an idle server. A loss there is one as well, and step times do not show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfgate.baseline.model import Bounds
from perfgate.result import Outcome
from perfgate.verdict.compare import Comparison
from perfgate.verdict.refusals import ACCEPT_TOLERANCE
from perfgate.workload import Sample


def at_accept_length(samples: Sequence[Sample], wanted: float) -> list[Sample]:
    """``samples`` with the tokens/s that they would have at ``wanted`` tokens a verify step."""
    return [
        replace(s, output_throughput=s.output_throughput * wanted / s.accept_length) if s.accept_length else s
        for s in samples
    ]


def unexplained(bounds: Bounds, throughput: float) -> Bounds:
    """``bounds`` of a loss of tokens/s beside equal step times: the relative one, and as much as accept lengths may differ
    by before the comparison is refused, since they are averages that do not cover just one sample."""
    least = (bounds.relative + ACCEPT_TOLERANCE) * throughput
    return replace(bounds, absolute={"throughput": max(least, bounds.absolute.get("throughput", 0.0))})


def noted(one: Comparison, wanted: float) -> Comparison:
    """A comparison of tokens/s that says what it is."""
    said = (
        f"at the baseline's accept length {wanted:.2f}; not gated but for a loss that the verify steps do not explain"
    )
    if one.outcome is Outcome.REGRESSION:
        return replace(one, note=f"{said}: the server stood still between them")
    # A gain that the steps do not show is none of the model's.
    return replace(one, note=said, outcome=Outcome.PASS if one.outcome is Outcome.IMPROVED else one.outcome)
