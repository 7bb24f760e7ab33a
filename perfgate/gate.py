"""From what a run collected to its result: every point judged, every check made (pure)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfgate import checks, history, past_runs, physics, preflight
from perfgate.baseline import Baseline, BaselineFile, Bounds, smoke
from perfgate.campaign import CampaignData, PointData
from perfgate.recipe import Point, Recipe
from perfgate.redact import redact, redact_text
from perfgate.result import CheckResult, Outcome, PointResult, RunResult, SampleRow
from perfgate.sampler import Taken
from perfgate.validity import Problem
from perfgate.verdict import Verdict, judge, run_verdict, starts_elsewhere
from perfgate.workload import Sample


@dataclass(frozen=True)
class Yardstick:
    """What the points are judged by: a baseline file of this fingerprint, or the recipe's smoke floors, or nothing."""

    recipe: Recipe
    file: BaselineFile | None
    fingerprint: Mapping[str, Any]
    recording: bool
    samples: int
    max_samples: int
    points: int
    past: past_runs.Past = field(default_factory=dict)
    """This machine's own runs of the same fingerprint, by point, oldest first."""

    @property
    def judged_by(self) -> str:
        if self.recording:
            return "recording"
        if self.file is not None:
            return "baseline"
        return "smoke" if any(p.smoke for p in self.recipe.points) else "nothing"

    def baseline(self, concurrency: int) -> Baseline | None:
        """The stored baseline. The smoke floor stands in only where this hardware has no file at all: a point that a
        file lacks, or a file of another fingerprint, must not pass by a floor made for any machine."""
        if self.file is not None:
            return self.file.point(concurrency, self.bounds(concurrency))
        floor = self.recipe.point(concurrency).smoke
        return None if floor is None or self.recording else smoke(concurrency, floor.throughput, floor.step_ms)

    def bounds(self, concurrency: int) -> Bounds:
        """How much worse counts at a point, from the recipe."""
        own, noise = self.recipe.bounds, self.recipe.point(concurrency).noise
        absolute = {"throughput": noise.throughput, "step_time": noise.step_ms}
        return Bounds(
            relative=own.relative,
            absolute={name: value for name, value in absolute.items() if value > 0},
            between_start=own.between_start_rel_sd,
        )

    def judge(
        self,
        concurrency: int,
        samples: Sequence[Sample],
        problems: Sequence[str] = (),
        others: Mapping[int, Sequence[Sample]] | None = None,
    ) -> Verdict:
        """Judge one point; ``others`` are the samples of the run's other points, which show its starts too."""
        baseline = self.baseline(concurrency)
        return judge(
            samples,
            baseline,
            recording=self.recording,
            min_samples=self.samples,
            max_samples=self.max_samples,
            comparisons=2 * self.points,
            problems=problems,
            fingerprint=self.fingerprint if baseline is not None and not baseline.is_smoke else None,
            targets=_targets(self.recipe.point(concurrency)),
            concurrency=concurrency,
            elsewhere=starts_elsewhere([(s, self.baseline(c)) for c, s in (others or {}).items() if c != concurrency]),
        )

    def enough(
        self, concurrency: int, samples: Sequence[Sample], others: Mapping[int, Sequence[Sample]] | None = None
    ) -> bool:
        """Whether more samples would not change the answer."""
        if self.recording:
            return len(samples) >= self.max_samples
        return self.judge(concurrency, samples, others=others).outcome is not Outcome.INCONCLUSIVE


def point_result(
    data: PointData, yardstick: Yardstick, others: Mapping[int, Sequence[Sample]] | None = None
) -> PointResult:
    """One point's verdict with all of its attempts, thrown-away ones too. ``others``: the run's samples by point."""
    rows = sample_rows(data.attempts)
    concurrency = data.plan.concurrency
    if (spoilt := unmeasured(data, rows)) is not None:
        return spoilt
    return judged(yardstick.judge(concurrency, data.samples, others=others), concurrency, rows)


def unmeasured(data: PointData, rows: list[SampleRow]) -> PointResult | None:
    """The verdict on a point without samples that count (MISSING or INVALID), or None where there are some."""
    concurrency = data.plan.concurrency
    if data.failure is not None:
        failure = data.failure
        return PointResult(
            concurrency=concurrency,
            outcome=Outcome.MISSING,
            why=redact_text(failure.message),
            cause=failure.cause,
            evidence=[redact_text(line) for line in failure.evidence],
            advice=failure.advice,
            samples=rows,
        )
    if data.condemned:
        return PointResult(
            concurrency=concurrency,
            outcome=Outcome.INVALID,
            why=redact_text("; ".join(dict.fromkeys(str(p) for p in data.condemned))),
            evidence=_evidence(data.condemned),
            advice="mend what the evidence shows and measure again; docs/verdicts.md explains each kind",
            samples=rows,
        )
    if data.exhausted or not data.samples:
        problems = [p for t in data.thrown_away for p in t.problems if p.invalid]
        reasons = list(dict.fromkeys(str(p) for p in problems))
        reasons += list(dict.fromkeys(t.failure.message for t in data.thrown_away if t.failure is not None))
        said = redact_text("; ".join(reasons))
        return PointResult(
            concurrency=concurrency,
            outcome=Outcome.INVALID,
            why=f"{len(data.thrown_away)} samples thrown away, at most {data.max_retakes} may be: {said}",
            evidence=_evidence(problems),
            advice="mend what disturbed the samples and measure again; docs/verdicts.md explains each kind",
            samples=rows,
        )
    return None


def _evidence(problems: Sequence[Problem]) -> list[str]:
    return [redact_text(line) for line in dict.fromkeys(line for p in problems for line in p.evidence)][:12]


def judged(verdict: Verdict, concurrency: int, rows: list[SampleRow]) -> PointResult:
    """A point whose samples count, by its verdict."""
    return PointResult(
        concurrency=concurrency,
        outcome=verdict.outcome,
        why=verdict.why,
        advice=verdict.advice,
        metrics=list(verdict.metrics),
        samples=rows,
    )


def result(
    data: CampaignData,
    yardstick: Yardstick,
    facts: checks.ServerFacts | None,
    *,
    started_at: float,
    seconds: float,
    left_out: Sequence[str] = (),
    notes: Sequence[str] = (),
    command: Sequence[str] = (),
    commit: str | None = None,
    extra: Mapping[str, Any] | None = None,
    checked: Sequence[CheckResult] = (),
) -> RunResult:
    """The whole run. A failing check fails the run as a failing point does."""
    points = [point_result(p, yardstick, data.samples()) for p in data.points.values()]
    return assemble(
        points,
        data,
        yardstick,
        facts,
        started_at=started_at,
        seconds=seconds,
        left_out=left_out,
        notes=notes,
        command=command,
        commit=commit,
        extra=extra,
        checked=checked,
    )


def assemble(
    points: Sequence[PointResult],
    data: CampaignData,
    yardstick: Yardstick,
    facts: checks.ServerFacts | None,
    *,
    started_at: float,
    seconds: float,
    left_out: Sequence[str] = (),
    notes: Sequence[str] = (),
    command: Sequence[str] = (),
    commit: str | None = None,
    extra: Mapping[str, Any] | None = None,
    judged_by: str | None = None,
    checked: Sequence[CheckResult] = (),
) -> RunResult:
    """The run from its judged points. ``judged_by`` overrides the yardstick's word (A/B); ``checked`` are checks that
    the run made of its servers itself."""
    recipe = yardstick.recipe
    if facts is not None:
        predicted = preflight.predict(facts.capacity, [p.plan for p in data.points.values()])
        points = [never_asked(p, q) for p, q in zip(points, predicted, strict=True)]
    made = [*checks.all_checks(recipe, facts, points), *checked]
    # An A/B shows ratios: what its new side did beside another server is no run like the others.
    side_by_side = judged_by == "ab"
    outcome, why = run_verdict(points, paired=side_by_side)
    failed = [
        c for c in made if not c.outcome.passes and not (yardstick.recording and c.outcome is Outcome.NO_BASELINE)
    ]
    if outcome.passes and failed:
        outcome, why = failed[0].outcome, f"{why}; but check {failed[0].name}: {failed[0].why}"
    own = {} if side_by_side else past_runs.entries(points, today(started_at), commit, yardstick.recording)
    past = past_runs.merged(yardstick.file, yardstick.past, own)
    outside = seconds - data.server_seconds - data.client_seconds
    return RunResult(
        recipe=recipe.name,
        description=recipe.description,
        outcome=outcome,
        why=why,
        judged_by=judged_by or yardstick.judged_by,  # type: ignore[arg-type]
        started_at=started_at,
        seconds=seconds,
        server_seconds=data.server_seconds,
        client_seconds=data.client_seconds,
        overhead_share=max(0.0, outside / seconds) if seconds > 0 else None,
        command=redact(list(command)),
        commit=commit,
        fingerprint=dict(yardstick.fingerprint),
        fingerprint_differences=fingerprint_differences(yardstick),
        baseline_file=_baseline_name(yardstick),
        points=list(points),
        not_run=[f"{name}: not asked for (--concurrency)" for name in left_out],
        checks=made,
        notes=[
            redact_text(note)
            for note in (*data.notes, *notes, *graphs_grew(yardstick.file, facts), *past_runs.findings(past))
        ],
        extra={
            **extras(points, data, yardstick, facts),
            **({"history": past_runs.as_extra(past)} if past else {}),
            **(extra or {}),
        },
    )


GRAPHS_GREW = (1.1, 0.1)
"""Graphs that take a tenth and 0.1 GiB more than the baseline's are worth a word: SGLang logs whole 10 MiB."""


def graphs_grew(file: BaselineFile | None, facts: checks.ServerFacts | None) -> list[str]:
    """A note where the captured graphs take more memory than when the baseline was recorded: what they take is no longer
    there for KV, and on a smaller card for the start itself."""
    now = facts.capacity.graph_bytes if facts is not None else None
    if file is None or now is None:
        return []
    stored = [p.provenance.graph_gib for c in file.concurrencies if (p := file.stored_point(c)) is not None]
    before = max((gib for gib in stored if gib is not None), default=None)
    factor, least = GRAPHS_GREW
    gib = now / 2**30
    if before is None or gib <= factor * before or gib <= before + least:
        return []
    return [f"graph memory: {gib:.2f} GiB of captured graphs, {before:.2f} GiB when the baseline was recorded"]


def never_asked(point: PointResult, prediction: preflight.Prediction) -> PointResult:
    """A point at which the server could not hold C requests at once was not measured at C, whatever the figures say: a
    smaller batch has a shorter step, and would pass for an improvement."""
    limits = [f for f in prediction.failing if f.limit in (preflight.Limit.RUNNING, preflight.Limit.KV_POOL)]
    if not limits or point.outcome is Outcome.MISSING:
        return point
    why = "; ".join(f"{f.why} (change: {f.setting})" for f in limits)
    outcome = point.outcome if point.outcome is Outcome.REGRESSION else Outcome.INVALID
    return point.model_copy(update={"outcome": outcome, "why": f"{why}. {point.why}"})


def extras(
    points: Sequence[PointResult], data: CampaignData, yardstick: Yardstick, facts: checks.ServerFacts | None
) -> dict[str, Any]:
    """The parts that only some runs have: scaling, predictions, loosened and orphaned baselines."""
    found: dict[str, Any] = {}
    if (scaling := physics.as_extra(yardstick.recipe, points)) is not None:
        found["scaling"] = scaling
    if facts is not None:
        predicted = preflight.predict(facts.capacity, [p.plan for p in data.points.values()])
        outcomes = {p.concurrency: p for p in points}
        found["preflight"] = [
            p.beside(str(outcomes[p.concurrency].outcome), outcomes[p.concurrency].outcome is not Outcome.MISSING)
            for p in predicted
        ]
    if yardstick.file is not None:
        found |= _from_baseline(yardstick, yardstick.file)
    return found


def _from_baseline(yardstick: Yardstick, file: BaselineFile) -> dict[str, Any]:
    loosened = []
    for concurrency in file.concurrencies:
        stored = file.stored_point(concurrency)
        if stored is None:
            continue
        if stored.loosened is not None:
            mark = stored.loosened
            loosened.append(f"C={concurrency}: since {mark.since}, was {mark.throughput:g} tok/s: {mark.reason}")
    orphaned = [
        f"C={o.concurrency}: {'; '.join(o.differences)}; {o.advice}"
        for o in history.orphans(file, yardstick.fingerprint)
    ]
    found: dict[str, Any] = {"loosened": loosened, "orphaned_baselines": orphaned}
    return {key: value for key, value in found.items() if value}


def fingerprint_differences(yardstick: Yardstick) -> list[str]:
    """The fields in which this machine differs from the one the baseline was recorded on."""
    from perfgate.baseline.differences import differences

    if yardstick.file is None:
        return []
    found: list[str] = []
    for concurrency in yardstick.file.concurrencies:
        baseline = yardstick.baseline(concurrency) if concurrency in yardstick.recipe.concurrencies else None
        if baseline is not None and baseline.fingerprint:
            found += [d for d in differences(baseline.fingerprint, yardstick.fingerprint) if d not in found]
    return found


def today(seconds: float) -> str:
    """ISO 8601 in UTC, to the minute."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")


def _baseline_name(yardstick: Yardstick) -> str | None:
    if yardstick.file is None:
        return None
    path = yardstick.file.path
    return f"{path.parent.name}/{path.name}"


def _targets(point: Point) -> dict[str, float]:
    target = point.target
    if target is None:
        return {}
    values = {"throughput": target.throughput, "step_time": target.step_ms}
    return {name: value for name, value in values.items() if value is not None}


def sample_rows(attempts: Sequence[Taken]) -> list[SampleRow]:
    """Every attempt at a point, those that were thrown away too, as stored."""
    return [_row(i, taken) for i, taken in enumerate(attempts)]


def _row(index: int, taken: Taken) -> SampleRow:
    sample = taken.sample
    problems = list(dict.fromkeys(str(p) for p in taken.problems))
    if taken.failure is not None:
        problems.append(f"{taken.failure.cause}: {taken.failure.message}")
    return SampleRow(
        index=index,
        server_start=sample.server_start if sample else 0,
        started_at=sample.started_at if sample else None,
        seconds=sample.duration_s if sample else None,
        asked=taken.plan.num_prompts,
        completed=sample.completed if sample else None,
        throughput=sample.output_throughput if sample else None,
        step_ms=sample.step_ms if sample else None,
        mean_tpot_ms=sample.mean_tpot_ms if sample else None,
        ttft_ms=sample.median_ttft_ms if sample else None,
        accept_length=sample.accept_length if sample else None,
        clock_mhz=min(sample.clocks_mhz) if sample and sample.clocks_mhz else None,
        clock_low_mhz=min(sample.lowest_clocks_mhz) if sample and sample.lowest_clocks_mhz else None,
        clock_readings=sample.clock_readings if sample else None,
        clock_drift=sample.clock_drift if sample else None,
        throttle=list(sample.throttle_reasons) if sample else [],
        counted=taken.counts,
        problems=[redact_text(text) for text in problems],
    )
