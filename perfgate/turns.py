"""A/B where memory holds one server: the sides take turns, every turn on a server start of its own.

A pair is one sample of each side from the same round, minutes apart and between two starts. Drift and the spread between starts
therefore do not cancel within a pair as they do side by side; both show between rounds, and are judged by it.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfgate import ab
from perfgate.campaign import SPARE, Order, length_to, warmup_plan
from perfgate.recipe import Recipe
from perfgate.sampler import Sampler, Show
from perfgate.workload import Sample

LEAST, MOST = 3, 6
"""Starts a side where the user does not say: two leave one degree of freedom between them."""


@dataclass(frozen=True)
class Rounds:
    """From ``least`` to ``most`` starts of each side, and so many ``samples`` of each point at every start."""

    least: int
    most: int
    samples: int
    why: str

    def order(self, asked: Order) -> Order:
        """The same order in pairs."""
        return dataclasses.replace(asked, samples=self.least * self.samples, max_samples=self.most * self.samples)

    def note(self) -> str:
        """What the report says of it."""
        return (
            f"the sides took turns, one server at a time, {self.samples} samples of a point at each start: {self.why}"
        )


def planned(new: Recipe, old: Recipe, asked: int | None, samples: int) -> Rounds | None:
    """The rounds of an A/B, or None where both servers run side by side. ``asked``: starts a side that the user wants."""
    if asked is not None:
        return None if asked == 1 else Rounds(asked, asked, samples, f"--starts {asked}")
    full = next((side.name for side in (new, old) if side.takes_all_memory), None)
    if full is None:
        return None
    return Rounds(LEAST, MOST, samples, f"{full} leaves no memory for a second server (no max_total_tokens)")


Visit = Callable[[ab.Arm], None]
"""Called with each side at the end of its turn, while its server lives."""


def run(
    old: ab.Arm, new: ab.Arm, order: Order, rounds: Rounds, enough: ab.Enough, visit: Visit, show: Show, data: ab.AbData
) -> None:
    """Measure pairs round by round, until every point is clear. ``order`` counts pairs. What a server or client did ends in
    the data; Ctrl-C goes through."""
    dice = random.Random(order.seed)
    # The changed side first, so that a change that does not start costs one start, not two.
    sides, took = [new, old], 0.0
    for number in range(1, rounds.most + 1):
        todo = [c for c in order.concurrencies if ab.wants(c, data, order, enough)]
        if not todo:
            return
        about = f", about {took:.0f} s a round" if took else ""
        show(f"round {number} of {rounds.least} to {rounds.most}: {sides[0].label} side first{about}")
        began = time.monotonic()
        seeds = {c: [dice.randrange(2**31) for _ in range(rounds.samples)] for c in todo}
        taken: list[dict[int, list[Sample]]] = []
        for arm in sides:
            found = _Turn(arm, old, new, data, dice, show).take(todo, seeds, visit)
            if found is None:
                _close(todo, data, order)
                return
            taken.append(found)
        took = time.monotonic() - began
        before, after = taken if sides[0] is old else reversed(taken)
        for concurrency in todo:
            if not data.new.points[concurrency].closed:
                pairs = zip(before[concurrency], after[concurrency], strict=True)
                data.pairs.setdefault(concurrency, []).extend(pairs)
        sides = _next(sides, number, dice)


def _next(sides: list[ab.Arm], number: int, dice: random.Random) -> list[ab.Arm]:
    """Each even round reverses the one before it, so that a steady drift cancels over the two; others are drawn."""
    if number % 2 == 1:
        return sides[::-1]
    dice.shuffle(sides)
    return sides


def _close(todo: Sequence[int], data: ab.AbData, order: Order) -> None:
    """A side is lost: the others that had still to be measured have the same reason."""
    failures = [f for c in todo if (f := data.new.points[c].failure) is not None]
    failed = next((f for f in failures if f.server_lost), None)
    if failed is not None:  # else the start was refused, which condemned every point
        data.close(failed.cause, f"not run: {failed.message}", failed.advice, order.samples)


@dataclass(frozen=True)
class _Turn:
    arm: ab.Arm
    old: ab.Arm
    new: ab.Arm
    data: ab.AbData
    dice: random.Random
    show: Show

    def take(
        self, todo: Sequence[int], seeds: Mapping[int, Sequence[int]], visit: Visit
    ) -> dict[int, list[Sample]] | None:
        """One start of a side and its samples by point; None where the server did not start or was lost."""
        arm = self.arm
        if not ab.open_side(arm, self.data, self.show, todo):
            return None
        assert arm.sampler is not None
        try:
            found = self._samples(arm.sampler, todo, seeds)
            if found is not None:
                visit(arm)
            return found
        finally:
            arm.host.lost()
            arm.sampler = None

    def _samples(
        self, sampler: Sampler, todo: Sequence[int], seeds: Mapping[int, Sequence[int]]
    ) -> dict[int, list[Sample]] | None:
        for concurrency in todo:
            if not self._warm_up(sampler, concurrency):
                return None
        found: dict[int, list[Sample]] = {c: [] for c in todo}
        for index in range(max(map(len, seeds.values()))):
            points = list(todo)
            self.dice.shuffle(points)
            for concurrency in points:
                while len(found[concurrency]) <= index and not self.data.new.points[concurrency].closed:
                    sample = self._one(sampler, concurrency, seeds[concurrency][index], index)
                    if sample is not None:
                        found[concurrency].append(sample)
                if self._lost(concurrency):
                    return None
        return found

    def _warm_up(self, sampler: Sampler, concurrency: int) -> bool:
        """One discarded sample, which in each side's first turn says how long the samples have to be. Both sides have the same
        prompts, so where the second is faster by more than there is to spare, its first turn's are longer than the other's."""
        arm = self.arm
        plan, seconds = arm.data.points[concurrency].plan, arm.recipe.workload.min_seconds
        self.show(f"C={concurrency}: warm-up of the {arm.label} server, thrown away")
        taken = sampler.take(warmup_plan(plan), self.dice.randrange(2**31), self.show)
        ab.fail(arm, self.data.new, concurrency, taken)
        first = self.old.data.starts + self.new.data.starts == 1
        if arm.data.starts == 1 and (first or length_to(plan, taken, seconds / SPARE) != plan):
            plan = length_to(plan, taken, seconds)
            for side in (self.old, self.new):
                side.data.points[concurrency].plan = plan
        return not self._lost(concurrency)

    def _one(self, sampler: Sampler, concurrency: int, seed: int, index: int) -> Sample | None:
        """A sample that counts, or None; too many that do not close the point."""
        arm = self.arm
        self.show(f"C={concurrency}: sample {index + 1} of the {arm.label} side's start {arm.data.starts}")
        got = ab.take(arm, concurrency, seed, self.show)
        if got.counts and got.sample is not None:
            return got.sample
        if got.failure is not None and got.failure.server_lost:
            ab.fail(arm, self.data.new, concurrency, got)
            return None
        self.data.spoilt[concurrency] = self.data.spoilt.get(concurrency, 0) + 1
        self.show(f"C={concurrency}: thrown away: {'; '.join(ab.reasons(arm, got))}")
        ab.give_up(self.old, self.new, concurrency, self.data)
        return None

    def _lost(self, concurrency: int) -> bool:
        failure = self.data.new.points[concurrency].failure
        return failure is not None and failure.server_lost
