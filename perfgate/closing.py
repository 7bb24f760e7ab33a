"""What only the whole run shows, asked at its end: strangers with a beat, and patches that did not run everywhere (edge)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfgate import autotuned, serverlog, validity
from perfgate.campaign import CampaignData
from perfgate.proof import PatchProof
from perfgate.recipe import Recipe
from perfgate.redact import redact_text
from perfgate.result import CheckResult, Outcome
from perfgate.server.logfile import LogFile
from perfgate.validity import Problem, Span
from perfgate.workload import Sample

Window = tuple[float, float]


@dataclass
class StartRecord:
    """One server start as it is looked at when the run ends. ``windows`` are all spans in which the load was ours."""

    number: int
    log: Path | None
    proof: PatchProof | None = None
    windows: list[Window] = field(default_factory=list)
    replayed: list[Problem] = field(default_factory=list)
    """What a trace of its graphs' replay did not show."""
    ended: str = ""
    """How the server ended after its last sample, where that was not this run's doing."""


def close(recipe: Recipe, data: CampaignData, starts: Sequence[StartRecord]) -> None:
    """Condemn the points that the whole run speaks against; what does not touch them becomes a note."""
    for start in starts:
        text = LogFile(start.log).whole() if start.log is not None else ""
        if start.proof is not None:
            _sort(data, [*start.proof.check(measured(data, start.number), text), *start.replayed], None)
        _periodic(recipe, data, start, text)
    for concurrency, point in data.points.items():
        found = validity.compare(point.samples)
        _sort(data, [replace(p, message=f"C={concurrency}: {p.message}") for p in found], [concurrency])


def close_pairs(data: CampaignData, pairs: Mapping[int, Sequence[tuple[Sample, Sample]]]) -> None:
    """The same for what only both sides of an A/B show together. ``data`` is the new side's."""
    for concurrency, taken in pairs.items():
        found = validity.compare_arms([old for old, _ in taken], [new for _, new in taken])
        _sort(data, [replace(p, message=f"C={concurrency}: {p.message}") for p in found], [concurrency])


def deaths(starts: Sequence[StartRecord], side: str = "") -> list[CheckResult]:
    """A row for each start whose server did not live to its end: no point shows what came after the last sample."""
    return [
        CheckResult(
            name=f"{side}server start {start.number}",
            outcome=Outcome.MISSING,
            why=start.ended,
            evidence=[redact_text(line) for line in _last_lines(start.log)],
            advice="look at the end of its log: what ends an idle server is a fault, whatever the samples before it say",
        )
        for start in starts
        if start.ended
    ]


def autotuners(sides: Mapping[str, Sequence[StartRecord]]) -> list[str]:
    """Notes on kernels that Triton's autotuner chose differently in a run's starts; ``sides`` by the word before "start"."""
    return autotuned.notes(
        {
            f"{side}start {start.number}": autotuned.choices(
                LogFile(start.log).whole() if start.log is not None else ""
            )
            for side, starts in sides.items()
            for start in starts
        }
    )


def _last_lines(log: Path | None) -> list[str]:
    text = LogFile(log).tail(65536) if log is not None else ""
    return [line for line in text.splitlines() if line.strip()][-4:]


def measured(data: CampaignData, start: int) -> list[Window]:
    """The spans of one start's samples that count."""
    return [w for point in data.points.values() for w in _windows(point.samples, start)]


def _windows(samples: Iterable[Sample], start: int) -> list[Window]:
    return [
        (s.started_at, s.ended_at)
        for s in samples
        if s.server_start == start and s.started_at is not None and s.ended_at is not None
    ]


def _periodic(recipe: Recipe, data: CampaignData, start: StartRecord, text: str) -> None:
    try:
        log = serverlog.parse(text)
    except serverlog.ServerLogError:
        return  # an unreadable log is a problem of every sample already
    if any(end < begin for begin, end in start.windows):
        data.notes.append(
            f"server start {start.number}: the machine's clock was set back during a client run, so strangers who come by "
            "the clock could not be looked for"
        )
        return
    lengths = [recipe.workload.input_len, *recipe.warmup.prompt_lengths]
    beat = validity.stray_beat(log, [Span(*w) for w in start.windows], lengths)
    if beat is None:
        return
    for concurrency, point in data.points.items():
        own = [Span(*w) for w in _windows(point.samples, start.number)]
        if any(validity.falls_into(beat, span) for span in own):
            data.condemn([validity.beat_problem(beat, own)], [concurrency])
    message = validity.beat_problem(beat, [Span(*w) for w in measured(data, start.number)]).message
    data.notes.append(f"server start {start.number}: {message}")


def _sort(data: CampaignData, problems: Sequence[Problem], points: Sequence[int] | None) -> None:
    invalid = [p for p in problems if p.invalid]
    if invalid:
        data.condemn(invalid, points)
    data.notes += [str(p) for p in problems if not p.invalid]
