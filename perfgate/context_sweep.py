"""Step times at growing context, taken when the points are measured (edge)."""

from __future__ import annotations

import copy
import random
from typing import Any

from perfgate import context_report
from perfgate.campaign import length_to
from perfgate.recipe import Context, Recipe
from perfgate.result import CheckResult
from perfgate.sampler import Sampler, Show, Taken
from perfgate.workload import Plan

LITTLE_SHARE = 0.001
"""A long prompt's prefill takes most of such a sample, which is no standstill: there only the time a token counts."""


class ContextSweep:
    """One run's sweep. Without a ``[context]`` table in the recipe there is none."""

    def __init__(self, recipe: Recipe, seed: int, show: Show) -> None:
        self._recipe, self._dice, self._show = recipe, random.Random(seed), show
        self._readings: dict[int, list[float]] = {}
        self._failed: list[CheckResult] | None = None
        self._done = False
        self.seconds = 0.0
        """What the sweep's client runs took."""

    def checks(self) -> list[CheckResult]:
        """The rows; those of a sweep that was never reached are MISSING."""
        table = self._recipe.context
        if table is None:
            return []
        if self._failed is not None:
            return self._failed
        return (
            context_report.rows(table, self._readings)
            if self._done
            else context_report.not_made(table, "the run ended before it")
        )

    def as_extra(self) -> dict[str, Any]:
        table = self._recipe.context
        return {} if table is None or not self._readings else context_report.as_extra(table, self._readings)

    def measure(self, sampler: Sampler | None) -> None:
        """All lengths in random order, ``repeats`` times, after one discarded sample of each, from which the others take
        their length: one that is too short holds more of the client's own time than is valid. Later calls do nothing."""
        table = self._recipe.context
        if table is None or self._done or self._failed is not None:
            return
        if sampler is None or not sampler.server.alive():
            self._failed = context_report.not_made(table, "the server is not there any more")
            return
        taker = _for_long_prompts(sampler)
        work = self._recipe.workload
        plans = {n: Plan(1, table.prompts, n, table.output_len, work.client_warmup_requests) for n in table.lengths}
        for round_ in range(-1, table.repeats):
            order = list(table.lengths)
            self._dice.shuffle(order)
            for length in order:
                what = "warm-up, thrown away" if round_ < 0 else f"sample {round_ + 1} of {table.repeats}"
                self._show(f"context of {length} tokens, C=1: {what}")
                taken = self._take(taker, plans[length], work.max_retakes if round_ >= 0 else 0)
                if taken.failure is not None or (round_ >= 0 and not taken.counts):
                    self._failed = _spoilt(table, length, taken)
                    return
                if round_ < 0:
                    plans[length] = length_to(plans[length], taken, work.min_seconds)
                step = taken.sample.step_ms if taken.sample is not None else None
                if round_ >= 0 and step is not None:
                    self._readings.setdefault(length, []).append(step)
        self._done = True

    def _take(self, taker: Sampler, plan: Plan, retakes: int) -> Taken:
        while True:
            taken = taker.take(plan, self._dice.randrange(2**31), self._show)
            self.seconds += taken.seconds
            lost = taken.failure is not None and taken.failure.server_lost
            if taken.counts or lost or retakes <= 0:
                return taken
            retakes -= 1


def _for_long_prompts(sampler: Sampler) -> Sampler:
    """The same sampler with the bound on C/TPOT that suits prompts which take longer than their answers."""
    taker = copy.copy(sampler)
    work = sampler.recipe.workload.model_copy(update={"little_share": LITTLE_SHARE})
    taker.recipe = sampler.recipe.model_copy(update={"workload": work})
    return taker


def _spoilt(table: Context, length: int, taken: Taken) -> list[CheckResult]:
    if taken.failure is not None:
        failure = taken.failure
        why = f"at {length} tokens: {failure.cause}: {failure.message}"
        return context_report.not_made(table, why, failure.evidence, failure.advice)
    problems = [p for p in taken.problems if p.invalid]
    why = f"at {length} tokens no sample counted: {'; '.join(dict.fromkeys(str(p) for p in problems))}"
    return context_report.not_made(table, why, [line for p in problems for line in p.evidence][:6])
