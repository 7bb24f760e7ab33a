"""What would settle an INCONCLUSIVE point: more samples, a better baseline, more server starts, or a quieter machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfgate.baseline.floor import KNOWN_FROM
from perfgate.baseline.model import Baseline
from perfgate.result import Outcome
from perfgate.stats import fewest
from perfgate.verdict.compare import FEW, Comparison
from perfgate.verdict.planning import chance_of_samples, chance_of_starts

MOST = 1000
"""More samples than this at a point are not an answer."""

MOST_STARTS = 40
"""Nor are more server starts a side than this."""


CHANCE = 0.8
"""With what chance the number that is said settles it. More cannot be promised of a loss at the bound itself: there the
answer is as likely one as the other, however many samples are taken."""


@dataclass(frozen=True)
class Needed:
    """``samples`` of this run settle it; if None, ``both`` on each side; if None too, ``starts`` launches a side; with none
    of them the noise is too large. ``known`` is False where the samples are too few to show their noise: the number is then
    of those that show it. ``turns``: the starts are of an A/B that alternates them already. ``outlying``: some samples say
    otherwise than the rest, and that is all that keeps the loss from being one.
    """

    samples: int | None
    both: int | None = None
    starts: int | None = None
    known: bool = True
    turns: bool = False
    outlying: bool = False

    @property
    def count(self) -> int | None:
        """The number of samples, of this run or on each side; None where only more server starts help."""
        return self.samples if self.samples is not None else self.both


def needed(
    compared: Sequence[Comparison], count: int, baseline: Baseline, paired: bool = False, launches: int = 1
) -> Needed:
    """The most that any undecided metric needs to be settled with ``CHANCE`` by a fresh run. ``launches``: starts of each side of
    an A/B, of which only more help where there are several."""
    undecided = [c for c in compared if c.outcome is Outcome.INCONCLUSIVE]
    if launches > 1:
        return max((_more_starts(c, launches, count) for c in undecided), key=lambda w: w.starts or math.inf)
    sides = [len(baseline.metrics[c.metric.name].samples) for c in undecided]
    if count < FEW or min(sides) < FEW:
        alone = paired or min(sides) >= FEW
        return Needed(KNOWN_FROM, known=False) if alone else Needed(None, KNOWN_FROM, known=False)
    wants = [_one(c, count, m, paired) for c, m in zip(undecided, sides, strict=True)]
    if all(w.samples is not None for w in wants):
        return max(wants, key=lambda w: w.samples or 0)
    if all(w.count is not None for w in wants):
        return max(wants, key=lambda w: w.both or 0)
    return max((w for w in wants if w.count is None), key=lambda w: w.starts or 0)


def _one(c: Comparison, n: int, m: int, paired: bool) -> Needed:
    if c.only_order_missing:
        return _order(c, n, m, paired)

    def alone(count: int) -> bool:
        return chance_of_samples(c, n, m, count) >= CHANCE

    def together(count: int) -> bool:
        return chance_of_samples(c, n, m, count, count, paired) >= CHANCE

    # Pairs are taken together, so more of them is more on both sides.
    samples = _fewest(c, together if paired else alone, n + 1, None if paired else m)
    if samples is not None:
        return Needed(samples)
    both = None if paired else _fewest(c, together, m + 1, None)
    if both is not None:
        return Needed(None, both)
    if chance_of_starts(c, 1, 1, quiet=True) >= CHANCE:
        return Needed(None)
    starts = fewest(lambda count: chance_of_starts(c, count, 1, quiet=True) >= CHANCE, 2, MOST)
    return Needed(None, None, starts)


def _fewest(c: Comparison, likely: Callable[[int], bool], least: int, others: int | None) -> int | None:
    """Fewest samples that are ``likely`` to decide and, where a loss waits for it, make the order of all unlikely; against
    ``others``, or as many."""

    def told_apart(count: int) -> bool:
        return c.drop <= c.bound or c.ranks.would_tell(count, others or count, c.level.alarm)

    samples = fewest(likely, least, MOST)
    return samples if samples is None or told_apart(samples) else fewest(told_apart, samples, MOST)


def _order(c: Comparison, n: int, m: int, paired: bool) -> Needed:
    """How many samples make their order unlikely although as large a share of them as now says otherwise."""

    def alone(count: int) -> bool:
        return c.ranks.would_tell(count, m, c.level.alarm)

    def together(count: int) -> bool:
        return c.ranks.would_tell(count, count, c.level.alarm)

    samples = fewest(alone, n + 1, MOST)
    return Needed(samples, None if samples or paired else fewest(together, m + 1, MOST), outlying=True)


def _more_starts(c: Comparison, launches: int, pairs: int) -> Needed:
    """All of the error of pairs of alternating starts falls with the root of their number."""
    each = pairs / launches

    def enough(starts: int) -> bool:
        return chance_of_starts(c, starts, launches) >= CHANCE and (
            c.drop <= c.bound or c.ranks.would_tell(int(starts * each), 0, c.level.alarm)
        )

    return Needed(None, None, fewest(enough, launches + 1, MOST_STARTS), turns=True)
