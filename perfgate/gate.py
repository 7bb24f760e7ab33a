"""From what a run collected to its result: every point judged, every check made (pure)."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from perfgate import checks, history, past_runs, physics, preflight, start_spread
from perfgate.baseline import BaselineFile
from perfgate.baseline.differences import RECIPE, incomparable
from perfgate.baseline.file import best
from perfgate.campaign import CampaignData
from perfgate.point_results import point_result
from perfgate.redact import redact, redact_text
from perfgate.result import CheckResult, Outcome, PointResult, RunResult
from perfgate.suspects import suspects
from perfgate.verdict import run_verdict
from perfgate.yardstick import Yardstick


def result(
    data: CampaignData,
    yardstick: Yardstick,
    facts: checks.ServerFacts | None,
    *,
    points: Sequence[PointResult] | None = None,
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
    """The whole run. A failing check fails it as a failing point does; ``checked`` are those that the run made of its servers
    itself. The yardstick judges the points, unless they come judged (A/B, with its word for it in ``judged_by``)."""
    recipe = yardstick.recipe
    if points is None:
        points = [point_result(p, yardstick, data.samples()) for p in data.points.values()]
    if facts is not None:
        predicted = preflight.predict(facts.capacity, [p.plan for p in data.points.values()])
        points = [never_asked(p, q) for p, q in zip(points, predicted, strict=True)]
    made = [*checks.all_checks(recipe, facts, points), *checked]
    drawn = physics.as_extra(recipe, points)
    points = physics.spoilt(recipe, points, yardstick.recording)
    # An A/B shows ratios: what its new side did beside another server is no run like the others.
    side_by_side = judged_by == "ab"
    apart = fingerprint_differences(yardstick)
    outcome, why = run_verdict(points, suspects(yardstick.fingerprint, apart, points), paired=side_by_side)
    failed = [
        c for c in made if not c.outcome.passes and not (yardstick.recording and c.outcome is Outcome.NO_BASELINE)
    ]
    if failed and outcome.passes:
        outcome, why = failed[0].outcome, f"{why}; but check {failed[0].name}: {failed[0].why}"
    elif failed and yardstick.recording and outcome is Outcome.NO_BASELINE:  # which says nothing against a recording
        outcome, why = failed[0].outcome, f"check {failed[0].name}: {failed[0].why}"
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
        fingerprint_differences=apart,
        baseline_file=_baseline_name(yardstick),
        points=list(points),
        not_run=[f"{name}: not asked for (--concurrency)" for name in left_out],
        checks=made,
        notes=[
            redact_text(note)
            for note in (
                *data.notes,
                *notes,
                *start_spread.notes(points),
                *graphs_grew(yardstick.file, facts),
                *([] if side_by_side else recipe_unknown(yardstick)),
                *past_runs.findings(past),
            )
        ],
        extra={
            **extras(points, data, yardstick, facts),
            **({"scaling": drawn} if drawn is not None else {}),
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
    """The parts that only some runs have: predictions, loosened and orphaned baselines."""
    found: dict[str, Any] = {}
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
            loosened.append(f"C={concurrency}: since {mark.since}, was {best(stored)}: {mark.reason}")
    orphaned = [
        f"C={o.concurrency}: {'; '.join(o.differences)}; {o.advice}"
        for o in history.orphans(file, yardstick.fingerprint)
    ]
    found: dict[str, Any] = {"loosened": loosened, "orphaned_baselines": orphaned}
    return {key: value for key, value in found.items() if value}


def fingerprint_differences(yardstick: Yardstick) -> list[str]:
    """The fields in which this machine differs from the one the baseline was recorded on."""
    if yardstick.file is None:
        return []
    found: list[str] = []
    for concurrency in yardstick.file.concurrencies:
        baseline = yardstick.baseline(concurrency) if concurrency in yardstick.recipe.concurrencies else None
        if baseline is not None:
            apart = incomparable(baseline.fingerprint, yardstick.fingerprint, concurrency)
            found += [d for d in apart if d not in found]
    return found


def recipe_unknown(yardstick: Yardstick) -> list[str]:
    """A note where baselines are from before files kept what the recipe measured: an edit since would not be seen."""
    if yardstick.file is None or yardstick.recording or RECIPE not in yardstick.fingerprint:
        return []
    known = [c for c in yardstick.file.concurrencies if c in yardstick.recipe.concurrencies]
    without = [c for c in known if (b := yardstick.baseline(c)) is not None and RECIPE not in b.fingerprint]
    if not without:
        return []
    return [
        f"the baseline of {', '.join(f'C={c}' for c in without)} does not say what model and workload it was measured with: "
        "had the recipe been edited since, this comparison would be of two things; recording anew keeps it"
    ]


def today(seconds: float) -> str:
    """ISO 8601 in UTC, to the minute."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")


def _baseline_name(yardstick: Yardstick) -> str | None:
    if yardstick.file is None:
        return None
    path = yardstick.file.path
    return f"{path.parent.name}/{path.name}"
