"""How a change of the step time grows with the batch, over the points of one A/B run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perfgate.result import Outcome
from perfgate.scaling.change import StepChange, explain_change
from perfgate.verdict.model import Verdict


def step_change(verdicts: Mapping[int, Verdict]) -> StepChange | None:
    """What kind of cost the new side gained, from the pairs of all points.

    None with fewer than 2 points compared, and where no point is slower or faster beyond doubt: the likeliest of three
    explanations of noise leaves zero out more often than once in twenty, and unchanged code has no cost to name.
    """
    if not {Outcome.REGRESSION, Outcome.IMPROVED} & {v.outcome for v in verdicts.values()}:
        return None
    points = []
    for concurrency, verdict in verdicts.items():
        for one in verdict.comparisons:
            if one.metric.name == "step_time":
                delta = one.baseline * math.expm1(min(one.drop, 700.0))
                points.append((float(concurrency), one.baseline, delta, one.se * one.baseline))
    return explain_change(points) if len(points) > 1 else None
