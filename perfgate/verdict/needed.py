"""What would settle an INCONCLUSIVE point: more samples, a better baseline, more server starts, or a quieter machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.baseline.model import Baseline
from perfgate.result import Outcome
from perfgate.stats import samples_needed
from perfgate.stats.shift import Z95
from perfgate.verdict.compare import FEW, KNOWN_FROM, Comparison

MOST = 1000
"""More samples than this at a point are not an answer."""

MOST_STARTS = 40
"""Nor are more server starts a side than this."""


@dataclass(frozen=True)
class Needed:
    """``samples`` of this run settle it; if None, ``both`` on each side; if None too, ``starts`` launches a side; with none
    of them the noise is too large. ``known`` is False where the samples are too few to show their noise: the number is then
    of those that show it. ``turns``: the starts are of an A/B that alternates them already.
    """

    samples: int | None
    both: int | None = None
    starts: int | None = None
    known: bool = True
    turns: bool = False

    @property
    def count(self) -> int | None:
        """The number of samples, of this run or on each side; None where only more server starts help."""
        return self.samples if self.samples is not None else self.both


def needed(
    compared: Sequence[Comparison], count: int, baseline: Baseline, paired: bool = False, launches: int = 1
) -> Needed:
    """The most that any undecided metric needs, if its change stays where it is now. ``launches``: starts of each side of
    an A/B, of which only more help where there are several."""
    undecided = [c for c in compared if c.outcome is Outcome.INCONCLUSIVE]
    if launches > 1:
        return max((_more_starts(c, launches) for c in undecided), key=lambda w: w.starts or math.inf)
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
    within = math.sqrt(max(0.0, c.se**2 - c.se_between**2) / (1 / n + 1 / m))
    wanted, factor = _resolution(c)
    # Only an alarm allows for what starts may differ by unseen.
    between = c.se_between if c.drop <= c.bound else math.sqrt(max(0.0, c.se_alarm**2 - c.se**2 + c.se_between**2))

    def alone(count: int) -> float:
        return factor * math.hypot(within * math.sqrt(1 / count + 1 / m), between)

    def together(count: int) -> float:
        return factor * math.hypot(within * math.sqrt(2 / count), between)

    # Pairs are taken together, so more of them is more on both sides.
    samples = samples_needed(together if paired else alone, wanted, MOST)
    if samples is not None:
        return Needed(max(samples, n + 1))
    both = samples_needed(together, wanted, MOST)
    if both is not None:
        return Needed(None, max(both, n + 1))
    if factor * between <= wanted:
        return Needed(None)
    return Needed(None, None, max(2, math.ceil((2 * factor * between / wanted) ** 2)))


def _resolution(c: Comparison) -> tuple[float, float]:
    """The difference that has to be told from none, and how many standard errors of it that takes."""
    # PASS needs the drop plus its reach inside the question, REGRESSION needs it beyond k errors and the floor. With a
    # change just on an edge no number would do, so a quarter of the question is the finest resolution asked for.
    pass_room = c.question - c.drop if c.drop <= c.bound else -math.inf
    fail_room = (c.drop - c.bound) if c.drop > c.bound else -math.inf
    wanted = max(pass_room, fail_room, c.question / 4)
    factor = Z95 if pass_room >= fail_room else max(Z95, c.k * max(0.0, wanted) / max(c.drop, 1e-12))
    return wanted, factor


def _more_starts(c: Comparison, launches: int) -> Needed:
    """All of the error of pairs of alternating starts falls with the root of their number."""
    wanted, factor = _resolution(c)
    starts = max(launches + 1, math.ceil(launches * (factor * c.se / wanted) ** 2))
    return Needed(None, None, starts if starts <= MOST_STARTS else None, turns=True)
