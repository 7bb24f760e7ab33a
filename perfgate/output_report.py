"""From two servers' answers to the row of the output check (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.output_check import Run, blind, judge, reach
from perfgate.result import CheckResult, Outcome

NAME = "answers"
SHOWN = 6
"""Steps that the evidence names at most."""


@dataclass(frozen=True)
class Own:
    """The old server's answers: free, followed once more in the same batch, one prompt at a time, and, for a few steps,
    after prompts that end alike but began otherwise."""

    first: Run
    again: Run
    alone: Run
    elsewhere: Run


ALONE = "mend what the message names; python -m perfgate output makes this check alone, one server after the other"


def not_made(why: str, evidence: Sequence[str] = (), advice: str = ALONE) -> CheckResult:
    """The row of a check that could not be made, which is never a pass."""
    return CheckResult(
        name=NAME,
        outcome=Outcome.MISSING,
        unit="nats",
        why=f"not made: {why}",
        evidence=list(evidence),
        advice=advice or ALONE,
    )


def row(old: str, new: str, own: Own, candidate: Run, floor: float = 0.0) -> CheckResult:
    """Hold ``candidate``, the answers of recipe ``new``, to those of recipe ``old``.

    The yardstick is how far the old server is from itself, batched as before or not, whichever is farther. PASS,
    INVALID where the answers differ (the speed is then another model's), INCONCLUSIVE where the check is blind.
    Raises ValueError on runs of different shapes.
    """
    same = judge(own.first, own.again, own.first, floor)
    apart = judge(own.first, own.alone, own.first, floor)
    again = own.again if _farther(same.noise, apart.noise) else own.alone
    verdict = judge(own.first, again, candidate, floor)
    itself = (
        f"{old} is deterministic in the same batch"
        if same.deterministic
        else f"{old} is not deterministic: it differs from itself by {same.noise:.3g} nats in the same batch"
    )
    moved = reach(own.first, own.elsewhere)
    facts = (
        f"{verdict.steps} steps of {len(own.first)} prompts, {verdict.changed_tokens} other greedy tokens; {itself}, "
        f"one prompt at a time by {apart.noise:.3g}; another past moves its answers by {moved:.3g}"
    )
    found = CheckResult(
        name=NAME,
        outcome=Outcome.PASS,
        value=_finite(verdict.largest),
        bound=_finite(verdict.bound),
        unit="nats",
        why=facts,
    )
    if not verdict.ok:
        why = f"{new} does not answer as {old} does: {len(verdict.problems)} of {verdict.steps} steps differ; {facts}"
        if verdict.bound == 0.0:
            why += f"; {old} never differs from itself, so only equal answers pass: give [output] floor in nats"
        return found.model_copy(
            update={
                "outcome": Outcome.INVALID,
                "why": why,
                "evidence": list(verdict.problems[:SHOWN]),
                "advice": "its speed is that of another model: find which change alters the answers, with "
                "pytest -m correctness for a kernel, or by recipes one patch apart",
            }
        )
    if blind(own.first, own.elsewhere, verdict.bound):
        return found.model_copy(
            update={
                "outcome": Outcome.INCONCLUSIVE,
                "why": f"another past moves the answers of {old} by {moved:.3g} nats, so that a bound of {verdict.bound:.3g} "
                f"shows little of what attention does; {facts}",
                "advice": "weights that let attention reach the answers (patch scaled_weights, or a real checkpoint), or "
                "a smaller [output] floor",
            }
        )
    return found


def _farther(one: float, other: float) -> bool:
    return math.isnan(one) or one >= other


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
