"""The whole run from its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from perfgate.result import MetricResult, Outcome

ORDER = (
    Outcome.REGRESSION,
    Outcome.MISSING,
    Outcome.INVALID,
    Outcome.INCONCLUSIVE,
    Outcome.NO_BASELINE,
    Outcome.IMPROVED,
    Outcome.PASS,
)
"""The first of these that any point has is the run's outcome."""

UNIFORM = 0.5
"""Every point moved alike: none by less than this share of the one that moved most."""


class Judged(Protocol):
    """What a run needs of a point: ``verdict.Verdict`` and ``result.PointResult`` both have it."""

    @property
    def concurrency(self) -> int | None: ...
    @property
    def outcome(self) -> Outcome: ...
    @property
    def why(self) -> str: ...
    @property
    def metrics(self) -> Sequence[MetricResult]: ...


def run_verdict(
    points: Sequence[Judged], notes: Mapping[str, str] | None = None, paired: bool = False
) -> tuple[Outcome, str]:
    """Outcome and reason of a run. A run without points is MISSING: it never says yes without having measured.

    ``notes`` are fields of the fingerprint and clocks by name, shown where the environment is the first suspect; in an A/B
    (``paired``) it never is, since both sides had it.
    """
    if not points:
        return Outcome.MISSING, "nothing was measured"
    outcomes = [p.outcome for p in points]
    outcome = next(o for o in ORDER if o in outcomes)
    named = [f"C={p.concurrency} {p.outcome.value}" for p in points if not p.outcome.passes]
    if outcome.passes:
        faster = [f"C={p.concurrency}" for p in points if p.outcome is Outcome.IMPROVED]
        tail = f"; faster than the baseline beyond noise: {', '.join(faster)}" if faster else ""
        return outcome, f"{len(points)} of {len(points)} points at or above the floor{tail}"
    why = f"{len(named)} of {len(points)} points did not pass: {', '.join(named)}"
    pattern = _pattern(points, notes or {}, paired)
    return outcome, f"{why}. {pattern}" if pattern else why


def _gain(point: Judged, blamed: frozenset[str]) -> float | None:
    """The point's change of speed in the metric that regressed, positive where faster; None where it was not compared.

    Of a point that kept its floors it is that of the metrics ``blamed`` at others: a metric that improved beside one that
    regressed explains nothing. A step that takes four times as long is a quarter of the speed, -75 %: no loss is more than
    all of it.
    """
    compared = [m for m in point.metrics if m.change is not None]
    own = [m for m in compared if m.outcome is Outcome.REGRESSION]
    chosen = own or [m for m in compared if m.name in blamed] or compared
    changes = [(m.change or 0.0, m.higher_is_better) for m in chosen]
    gains = [change if more_is_faster else -change / max(1 + change, 1e-9) for change, more_is_faster in changes]
    return max(gains, key=abs) if gains else None


def _pattern(points: Sequence[Judged], notes: Mapping[str, str], paired: bool) -> str:
    if Outcome.REGRESSION not in [p.outcome for p in points]:
        return ""
    blamed = frozenset(m.name for p in points for m in p.metrics if m.outcome is Outcome.REGRESSION)
    gains = {p.concurrency: g for p in points if (g := _gain(p, blamed)) is not None}
    # One point alone has no pattern, and none has one by smoke floors: there is no baseline to be faster or slower than.
    if len(gains) < 2:
        return ""
    regressed = [p.concurrency for p in points if p.outcome is Outcome.REGRESSION]
    ends = f"{min(gains.values()):+.1%} to {max(gains.values()):+.1%}"
    # No clock or driver makes one of the two figures worse and the other better.
    both_ways = any(m.outcome is Outcome.IMPROVED for p in points for m in p.metrics)
    uniform = len(points) >= 3 and len(regressed) == len(points) and _alike(list(gains.values()))
    if not paired and uniform and not both_ways:
        seen = "; ".join(f"{k} {v}" for k, v in notes.items())
        return (
            f"All points moved alike ({ends}): environment: check clocks, driver, power cap, libraries and fingerprint "
            f"before the change{f' ({seen})' if seen else ''}; an A/B against the old state tells them apart"
        )
    others = [g for c, g in gains.items() if c not in regressed]
    lightest = min((c for c in gains if c is not None), default=None)
    if not paired and len(regressed) == 1 and len(others) >= 2 and min(others) >= 0:
        which = "light cell" if regressed[0] == lightest else "cell"
        return (
            f"One {which}, C={regressed[0]}, is worse while the others are as good or better ({ends}): "
            "a fault of the measurement at that point or of the change there; an A/B at that point tells"
        )
    slower = sum(g < 0 for g in gains.values())
    return f"Over all points: {slower} slower, {len(gains) - slower} not, speed {ends}"


def _alike(gains: Sequence[float]) -> bool:
    sizes = [abs(g) for g in gains]
    same_side = all(g < 0 for g in gains) or all(g > 0 for g in gains)
    return same_side and min(sizes) >= UNIFORM * max(sizes)
