"""Decode time per 1,000 tokens of real context, as rows of a run's checks (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perfgate.recipe import Context
from perfgate.result import CheckResult, Outcome
from perfgate.scaling import ScalingError
from perfgate.scaling.context import ContextLaw, Interval, fit

UNIT = "us per 1,000 tokens"


def names(table: Context) -> list[str]:
    """The rows that a run with this table has."""
    found = [f"context up to {table.knee:,} tokens"]
    return found + ([f"context beyond {table.knee:,} tokens"] if max(table.lengths) > table.knee else [])


def not_made(table: Context, why: str, evidence: Sequence[str] = (), advice: str = "") -> list[CheckResult]:
    """The rows of a check that could not be made, which are never a pass."""
    told = advice or "mend what the message names and run again"
    return [
        CheckResult(
            name=name,
            outcome=Outcome.MISSING,
            bound=table.us_per_1000_tokens,
            unit=UNIT,
            why=f"not made: {why}",
            evidence=list(evidence),
            advice=told,
        )
        for name in names(table)
    ]


def rows(table: Context, readings: Mapping[int, Sequence[float]]) -> list[CheckResult]:
    """Judge step times in ms by prompt length. A slope passes where all of its interval is within the bound."""
    try:
        law = fit({length + table.output_len / 2: steps for length, steps in readings.items()}, table.knee)
    except ScalingError as error:
        return not_made(table, str(error))
    slopes = [(law.below, law.below_interval)]
    if law.above is not None and law.above_interval is not None:
        slopes.append((law.above, law.above_interval))
    return [
        _row(name, table, law, value, interval) for name, (value, interval) in zip(names(table), slopes, strict=True)
    ]


def as_extra(table: Context, readings: Mapping[int, Sequence[float]]) -> dict[str, Any]:
    """The step times that were fitted, for the result's ``extra``."""
    return {"context": {"output_len": table.output_len, "step_ms": {str(n): list(s) for n, s in readings.items()}}}


def _row(name: str, table: Context, law: ContextLaw, value: float, interval: Interval) -> CheckResult:
    low, high = interval
    bound = table.us_per_1000_tokens
    why = f"{value:.3g} [{low:.3g}, {high:.3g}], from {law.step_ms:.4g} ms a step at C=1, misfit {law.misfit:.1%}"
    outcome, advice = Outcome.PASS, ""
    if bound is None:
        why += "; the recipe has no bound (context.us_per_1000_tokens)"
    elif low > bound:
        outcome = Outcome.REGRESSION
        advice = "a cost that grows with the context: profile a decode step at the longest length"
    elif high > bound:
        outcome = Outcome.INCONCLUSIVE
        why += f"; the interval spans the bound {bound:g}"
        advice = f"measure on a quieter machine, or raise context.repeats above {table.repeats}"
    return CheckResult(name=name, outcome=outcome, value=value, bound=bound, unit=UNIT, why=why, advice=advice)
