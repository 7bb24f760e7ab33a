"""Rounds of samples on live servers, and the A/B verdicts that come of them (edge and pure part)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfgate.baseline import METRICS
from perfgate.campaign import length_to, warmup_plan
from perfgate.recipe import Recipe
from perfgate.result import Outcome
from perfgate.sampler import Sampler
from perfgate.stats import median
from perfgate.verdict import Verdict, judge_ab, run_verdict, step_change
from perfgate.workload import Plan, Sample
from perfgate.yardstick import point_bounds

Show = Callable[[str], None]
Rounds = dict[int, list[dict[str, Sample]]]
"""By point: rounds, each with one valid sample of every server by name."""


class EvaluationError(RuntimeError):
    """A server was lost, or nothing valid could be measured."""


@dataclass
class Bench:
    """Live servers by name, and the plan of a sample at each point, the same for all of them."""

    recipe: Recipe
    samplers: Mapping[str, Sampler]
    dice: random.Random
    show: Show
    plans: dict[int, Plan] = field(default_factory=dict)
    thrown_away: int = 0

    def warm_up(self) -> None:
        """One discarded sample a point and server; samples are then as long as the fastest of them needs."""
        for concurrency in self.recipe.concurrencies:
            plans = []
            for name, sampler in self.samplers.items():
                plan = self.recipe.plan(concurrency)
                taken = sampler.take(warmup_plan(plan), self.dice.randrange(2**31), self.show)
                if taken.failure is not None:
                    raise EvaluationError(f"{name}: {taken.failure.message}")
                plans.append(length_to(plan, taken, self.recipe.workload.min_seconds))
            self.plans[concurrency] = max(plans, key=lambda p: p.num_prompts)

    def rounds(self, names: Sequence[str], count: int, points: Sequence[int]) -> Rounds:
        """``count`` whole rounds a point: the servers in an order drawn anew each time, the same prompts for all.

        A round with a sample that does not count is thrown away whole and taken again; as many as are kept may be, on a
        machine with other work, where a standstill of seconds is nothing rare. ``thrown_away`` counts them.
        """
        found: Rounds = {c: [] for c in points}
        spoilt = 0
        while todo := [c for c in points if len(found[c]) < count]:
            self.dice.shuffle(todo)
            for concurrency in todo:
                one = self._round(names, concurrency)
                if one is not None:
                    found[concurrency].append(one)
                    continue
                spoilt += 1
                self.thrown_away += 1
                if spoilt > count * len(points):
                    raise EvaluationError(f"{spoilt} rounds with invalid samples")
        return found

    def _round(self, names: Sequence[str], concurrency: int) -> dict[str, Sample] | None:
        order, seed = list(names), self.dice.randrange(2**31)
        self.dice.shuffle(order)
        taken: dict[str, Sample] = {}
        for name in order:
            got = self.samplers[name].take(self.plans[concurrency], seed, self.show)
            if got.failure is not None and got.failure.server_lost:
                raise EvaluationError(f"{name}: {got.failure.message}")
            if not got.counts or got.sample is None:
                why = got.failure.message if got.failure else "; ".join(p.message for p in got.problems if p.invalid)
                self.show(f"C={concurrency}, {name}: round thrown away: {why}")
                return None
            taken[name] = got.sample
        return taken


def judge_run(
    recipe: Recipe, rounds: Rounds, old: str, new: str, least: int | None = None, most: int | None = None
) -> dict[str, Any]:
    """One A/B run: the verdict of each point and of the run, the changes seen, and how the fit explains them.

    ``least`` and ``most``: of a run that looks again after each round until the answer is clear, its first and last look.
    """
    verdicts: dict[int, Verdict] = {}
    changes: dict[int, float] = {}
    errors: dict[int, float] = {}
    for concurrency, samples in rounds.items():
        pairs = [(r[old], r[new]) for r in samples]
        verdicts[concurrency] = judge_ab(
            pairs,
            bounds=point_bounds(recipe, concurrency),
            min_samples=least,
            max_samples=most,
            comparisons=2 * len(rounds),
        )
        step = next(c for c in verdicts[concurrency].comparisons if c.metric is METRICS["step_time"])
        changes[concurrency], errors[concurrency] = math.expm1(step.drop), step.se
    outcome, why = run_verdict(list(verdicts.values()))
    told = step_change(verdicts)
    return {
        "outcome": str(outcome),
        "why": why,
        "points": {c: str(v.outcome) for c, v in verdicts.items()},
        "step_change": {c: round(v, 5) for c, v in changes.items()},
        "errors": {c: round(v, 5) for c, v in errors.items()},
        "per_request": told.per_request if told is not None else None,
        "explained": str(told) if told is not None else "",
        "alarm": outcome is Outcome.REGRESSION,
        "pairs": min(map(len, rounds.values())),
    }


def judge_runs(
    recipe: Recipe,
    more: Callable[[int], Rounds],
    old: str,
    changed: Sequence[str],
    same: Sequence[str],
    least: int,
    most: int,
) -> tuple[Rounds, dict[str, dict[str, Any]]]:
    """A/B runs on the same rounds as the gate makes them: ``least`` rounds, then one more until a run's answer is clear.

    ``more(n)`` takes n rounds of all servers. A run of a ``changed`` side ends with its first answer that is not
    INCONCLUSIVE, or after ``most`` rounds; the rounds end with the last of them, and then the ``same`` sides are judged,
    whose answer could only have been an alarm earlier. Returns the rounds and each side's run.
    """
    rounds = more(least)
    found: dict[str, dict[str, Any]] = {}
    open_runs = [*changed, *same]
    while True:
        for name in open_runs:
            found[name] = judge_run(recipe, rounds, old, name, least, most)
        open_runs = [
            name
            for name in open_runs
            if (not found[name]["alarm"] if name in same else found[name]["outcome"] == Outcome.INCONCLUSIVE)
        ]
        if min(map(len, rounds.values())) >= most or not set(open_runs) & set(changed):
            return rounds, found
        for concurrency, several in more(1).items():
            rounds[concurrency].extend(several)


def spread_between(rounds: Sequence[Rounds], names: Sequence[str]) -> dict[int, float]:
    """Relative standard deviation of the step time between servers of the same kind, by point, pairs' noise left in."""
    found = {}
    for concurrency in rounds[0]:
        levels = [
            median([math.log(r[name].step_ms or 1.0) for batch in rounds for r in batch[concurrency]]) for name in names
        ]
        found[concurrency] = float(np.std(levels, ddof=1))
    return found
