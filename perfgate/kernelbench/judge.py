"""Each shape of a run against its baseline, by the gate's own rules (pure)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.baseline.differences import differences
from perfgate.baseline.model import METRICS, Bounds, MetricBaseline
from perfgate.kernelbench import clocks, spread
from perfgate.kernelbench.baseline import KernelFile, KernelPoint, comparable, meant, samples
from perfgate.kernelbench.rows import Run
from perfgate.kernelbench.shapes import kernel_of, restore
from perfgate.result import Outcome
from perfgate.stats.variance import Side
from perfgate.verdict.compare import Comparison, compare, logs
from perfgate.verdict.levels import levels

METRIC = METRICS["step_time"]
ROOF = "roofline"
"""What the judgement of a run's own rates is called, beside the shapes' keys."""


@dataclass(frozen=True)
class Judgement:
    """What one shape came to. ``change`` is time/baseline - 1; None where nothing was compared.

    ``note`` says of which kernel sources the baseline is; it changes no outcome.
    """

    key: str
    outcome: Outcome
    why: str
    change: float | None = None
    note: str = ""

    @property
    def words(self) -> str:
        """Why, and the note."""
        return f"{self.why}; {self.note}" if self.note else self.why


@dataclass(frozen=True)
class _Times:
    """Samples of one shape in milliseconds with the number of the run that each is from."""

    values: list[float]
    starts: list[int]


def judge(runs: Sequence[Run], baseline: KernelFile | None) -> list[Judgement]:
    """Every shape of one or more runs of one state, then every recorded shape that these runs lack.

    A shape has to be in every run that was meant to hold it; a quick run answers for the quick share alone, and a partial one
    for what it was asked. Never raises for what the runs hold.
    """
    points: Mapping[str, KernelPoint] = baseline.points if baseline is not None else {}
    asked = [key for run in runs for key in (*run.ours(), *run.wrong, *run.asked)]
    known = [key for key, point in points.items() if any(point.quick or not run.quick for run in runs)]
    faults = {key: why for key in dict.fromkeys([*asked, *known]) if (why := _unfit(key, runs, points.get(key)))}
    sound = [key for key in dict.fromkeys(asked) if key not in faults]
    times = {key: _times(key, runs) for key in sound}
    found = [_one(key, runs, points, times) for key in sound]
    found += [Judgement(key, outcome, why) for key, (outcome, why) in faults.items()]
    found += _rates(runs)
    if not asked and not known:
        found.append(Judgement("all shapes", Outcome.MISSING, "nothing was measured and nothing is recorded"))
    return found


def _unfit(key: str, runs: Sequence[Run], point: KernelPoint | None) -> tuple[Outcome, str] | None:
    """Why a shape can't be compared for what the runs hold of it, or None."""
    wrong = [run.wrong[key] for run in runs if key in run.wrong]
    if wrong:
        return Outcome.INVALID, f"no time of it counts: {wrong[0]}"
    rows = [row for run in runs if (row := run.ours().get(key)) is not None]
    if not rows:
        recorded = (
            f"recorded on {point.provenance.recorded_at} with {point.time_us.median:.1f} us, and " if point else ""
        )
        return Outcome.MISSING, f"{recorded}not in {'this run' if len(runs) == 1 else 'any of these runs'}"
    lacking = [n for n, run in enumerate(runs, 1) if key not in run.ours() and meant(run, key, point)]
    if lacking:
        return Outcome.MISSING, f"not in run {', '.join(map(str, lacking))} of {len(runs)}, which was to measure it"
    for run in runs:
        if (row := run.ours().get(key)) is None:
            continue
        wanted, words = clocks.highest(row, run.fingerprint), "and the card's highest is"
        if point is not None and point.sm_mhz and not _apart(point, run):
            wanted, words = point.sm_mhz, "its baseline at"
        if why := clocks.fault(row, wanted, words):
            return Outcome.INVALID, why
    return None


def _apart(point: KernelPoint, run: Run) -> list[str]:
    return differences(point.provenance.fingerprint, comparable(run.fingerprint))


def _rates(runs: Sequence[Run]) -> list[Judgement]:
    over = [(row, share) for run in runs for row, share in run.over_roof()]
    if not over:
        return []
    row, share = max(over, key=lambda one: one[1])
    why = f"{row.shape.key} {row.label} is at {share:.0%} of the roofline: a rate of the run is too low, or the time is wrong"
    return [Judgement(ROOF, Outcome.INVALID, why if len(over) == 1 else f"{why}; {len(over) - 1} more are above it")]


def _times(key: str, runs: Sequence[Run]) -> _Times:
    found = _Times([], [])
    for number, run in enumerate(runs):
        if (row := run.ours().get(key)) is not None:
            own = samples(row)
            found.values.extend(us / 1e3 for us in own)
            found.starts.extend([number] * len(own))
    return found


def _one(key: str, runs: Sequence[Run], points: Mapping[str, KernelPoint], times: Mapping[str, _Times]) -> Judgement:
    point = points.get(key)
    if point is None:
        return Judgement(key, Outcome.NO_BASELINE, "no baseline for this shape on this card")
    for run in runs:
        if apart := _apart(point, run):
            why = f"comparison with the baseline of {point.provenance.recorded_at} refused: {'; '.join(apart)}"
            return Judgement(key, Outcome.NO_BASELINE, why)
    own, us = times[key], point.time_us.median
    sides: dict[str, Sequence[Side]] = {k: _sides(t, points[k]) for k, t in times.items() if k in points}
    one = compare(
        METRIC,
        own.values,
        own.starts,
        _base(point),
        bounds(point, own.starts, statistics.median(run.rates.floor_us for run in runs)),
        levels(len(own.values), comparisons=len(times)),
        spread.elsewhere(key, us, sides, {k: points[k].time_us.median for k in sides}),
    )
    return Judgement(key, one.outcome, explain(one), one.change, _note(key, point, runs))


def bounds(point: KernelPoint, starts: Sequence[int], floor_us: float) -> Bounds:
    """The change that matters for a shape, between runs of these ``starts`` and the baseline's."""
    us = point.time_us.median
    least_us = spread.smallest_us(us, floor_us, starts, [s.server_start for s in point.time_us.samples])
    return Bounds(absolute={"step_time": least_us / 1e3}, between_start=spread.between_runs(us))


def _sides(times: _Times, point: KernelPoint) -> Sequence[Side]:
    base = _base(point)
    return ((logs(METRIC, times.values), times.starts), (logs(METRIC, base.samples), base.starts))


def _base(point: KernelPoint) -> MetricBaseline:
    stored = point.time_us
    return MetricBaseline(
        samples=tuple(s.value / 1e3 for s in stored.samples),
        starts=tuple(s.server_start for s in stored.samples),
        median=stored.median / 1e3,
        spread=stored.spread / 1e3,
    )


def _note(key: str, point: KernelPoint, runs: Sequence[Run]) -> str:
    """Of which sources the baseline is, seen from these runs; nothing where the runs do not say of which they are."""
    now = {run.sources[kernel] for run in runs if (kernel := kernel_of(restore(point.shape))) in run.sources}
    if not now:
        return ""
    commit = (point.provenance.commit or "an unknown commit")[:12]
    if point.sources is None:
        return f"the baseline, of {commit}, does not say which kernel sources it was recorded for"
    return "" if now == {point.sources} else f"the baseline was recorded for other sources of this kernel, of {commit}"


def explain(one: Comparison) -> str:
    """A comparison in one line, in microseconds, in whichever direction it went."""
    span = (
        f"{one.value * 1e3:.2f} us, {one.change:+.1%} against {one.baseline * 1e3:.2f} "
        f"(95 % interval {one.change_low:+.1%} to {one.change_high:+.1%})"
    )
    size, noise = math.expm1(one.bound), math.expm1(one.noise)
    words = {
        Outcome.REGRESSION: f"slower by more than {size:.1%} and than noise ({noise:.1%})",
        Outcome.IMPROVED: f"faster by more than {size:.1%} and than noise ({noise:.1%})",
        Outcome.PASS: f"a loss of {math.expm1(one.question):.1%} is excluded",
    }
    return f"{span}: {words.get(one.outcome, f'a loss of {size:.1%} is neither shown nor excluded: measure again')}"


def render(found: Sequence[Judgement]) -> str:
    """All judgements, those that fail first, with what to do about them."""
    rows = sorted(found, key=lambda j: (j.outcome.passes, j.key))
    lines = [f"{j.outcome:12} {j.key}: {j.words}" for j in rows]
    counts = {o: sum(j.outcome is o for j in found) for o in Outcome}
    lines.append("; ".join(f"{n} {o}" for o, n in counts.items() if n))
    if counts[Outcome.IMPROVED] or counts[Outcome.NO_BASELINE]:
        lines.append("to record: python -m perfgate kernels record RUN.json --reason TEXT")
    return "\n".join(lines) + "\n"
