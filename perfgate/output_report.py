"""From two servers' answers to the row of the output check (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfgate.output_check import OutputVerdict, Run, blind, judge, reach
from perfgate.result import CheckResult, Outcome

NAME = "answers"
DECODED_SHARE = 0.5
"""Below this share of steps that came out of a decode, the check is one of the prefill's kernels."""

SHOWN = 6
"""Steps that the evidence names at most."""


@dataclass(frozen=True)
class Own:
    """The old server's answers: free, followed once more in the same batch, one prompt at a time, begun anew from time to
    time, and, for a few steps, after prompts that end alike but began otherwise."""

    first: Run
    again: Run
    alone: Run
    restarted: Run
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

    The yardstick is how far the old server is from itself, batched as before, batched otherwise, or begun anew, whichever is
    farthest. PASS, INVALID where the answers differ (the speed is then another model's), INCONCLUSIVE where the check is
    blind. Raises ValueError on runs of different shapes.
    """
    same, apart, anew = (judge(own.first, [run], own.first, floor) for run in (own.again, own.alone, own.restarted))
    verdict = judge(own.first, [own.again, own.alone, own.restarted], candidate, floor)
    itself = (
        f"{old} is deterministic in the same batch"
        if same.deterministic
        else f"{old} is not deterministic: it differs from itself by {_noise(same):.3g} nats in the same batch"
    )
    moved = reach(own.first, own.elsewhere)
    facts = (
        f"{verdict.steps} steps of {len(own.first)} prompts, {verdict.decoded} of them decoded, {verdict.changed_tokens} other "
        f"greedy tokens; {itself}, one prompt at a time by {_noise(apart):.3g}, begun anew by {_noise(anew):.3g}; another past "
        f"moves its answers by {moved:.3g}"
    )
    found = CheckResult(
        name=NAME,
        outcome=Outcome.PASS,
        value=_finite(verdict.largest),
        bound=_finite(verdict.limit),
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
    widest = verdict.restarted_bound if any(step.restarted for steps in candidate for step in steps) else verdict.bound
    if blind(own.first, own.elsewhere, widest):
        return _open(
            found,
            f"another past moves the answers of {old} by {moved:.3g} nats, so that a bound of {widest:.3g} "
            f"shows little of what attention does; {facts}",
            "weights that let attention reach the answers (patch scaled_weights, or a real checkpoint), or "
            "a smaller [output] floor",
        )
    if verdict.decoded < DECODED_SHARE * verdict.steps:
        return _open(
            found,
            f"only {verdict.decoded} of {verdict.steps} steps came out of a decode: after another greedy token the "
            f"answer has to begin anew with a prefill; {facts}",
            "weights whose best token is ahead of the second by more than the noise, such as a real checkpoint's, "
            "or more [output] steps where the table asks for few",
        )
    return found


def _open(found: CheckResult, why: str, advice: str) -> CheckResult:
    return found.model_copy(update={"outcome": Outcome.INCONCLUSIVE, "why": why, "advice": advice})


def steps(own: Own, candidate: Run) -> dict[str, list[list[dict[str, Any]]]]:
    """All runs' steps as plain data: ranked choices (best first), and the log-probability of the token that was followed."""
    along = {"first": own.first, "again": own.again, "alone": own.alone, "restarted": own.restarted, "new": candidate}
    return {name: _plain(own.first, run) for name, run in {**along, "elsewhere": own.elsewhere}.items()}


def _plain(reference: Run, run: Run) -> list[list[dict[str, Any]]]:
    return [
        [
            {
                "choices": [[token, _finite(value)] for token, value in step.choices],
                "followed": [wanted.token, _finite(step.logprob(wanted.token))],
                "decoded": step.decoded,
                "restarted": step.restarted,
            }
            for wanted, step in zip(along, steps, strict=False)  # the control follows a part
        ]
        for along, steps in zip(reference, run, strict=True)
    ]


def _noise(verdict: OutputVerdict) -> float:
    """How far the run that ``judge`` had as its only yardstick is from the reference, restarted steps too."""
    return verdict.restarted_noise


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
