"""One measuring run: warm-up, then samples of all points interleaved in seeded random order, until the answer is clear."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perfgate import diagnosis
from perfgate.recipe import Recipe
from perfgate.sampler import Failure, Sampler, Show, Taken
from perfgate.server import ServerError
from perfgate.server.lifecycle import NotAttached, NotProved
from perfgate.validity import Problem
from perfgate.workload import Plan, Sample


class Host(Protocol):
    """Gives the campaign its server, and another one when that died."""

    def sampler(self, start_number: int) -> Sampler: ...

    def lost(self) -> None: ...

    def renew(self) -> None: ...


@dataclass
class PointData:
    """What was collected at one point, in the order in which it was taken."""

    plan: Plan
    max_retakes: int
    attempts: list[Taken] = field(default_factory=list)
    failure: Failure | None = None
    condemned: tuple[Problem, ...] = ()
    """What makes the whole point invalid, whatever its samples say: a server that is not the patched one, a stranger."""

    @property
    def samples(self) -> list[Sample]:
        """The samples that count."""
        return [t.sample for t in self.attempts if t.counts and t.sample is not None]

    @property
    def thrown_away(self) -> list[Taken]:
        return [t for t in self.attempts if not t.counts]

    @property
    def exhausted(self) -> bool:
        """More was thrown away than may be taken again: what is left of the samples makes no verdict."""
        return len(self.thrown_away) > self.max_retakes

    @property
    def closed(self) -> bool:
        return self.failure is not None or self.exhausted or bool(self.condemned)


@dataclass
class CampaignData:
    """All points of one run, and where its time went."""

    points: dict[int, PointData]
    server_seconds: float = 0.0
    client_seconds: float = 0.0
    warmup_seconds: float = 0.0
    starts: int = 0
    planned_starts: int = 1
    """Of ``starts``, those that no death asked for."""
    notes: list[str] = field(default_factory=list)

    def samples(self) -> dict[int, list[Sample]]:
        """The samples that count of the points that still stand."""
        return {c: point.samples for c, point in self.points.items() if not point.closed}

    def condemn(self, problems: Sequence[Problem], points: Sequence[int] | None = None) -> None:
        """Make these points (default: all) invalid by ``problems``. A point that is missing stays missing."""
        for concurrency in self.points if points is None else points:
            point = self.points[concurrency]
            if point.failure is None:
                point.condemned = (*point.condemned, *(p for p in problems if p not in point.condemned))

    def close(self, cause: str, message: str, advice: str, samples: int) -> None:
        """Give every point that lacks ``samples`` the same reason for being missing; what is measured stays."""
        for point in self.points.values():
            if not point.closed and len(point.samples) < samples:
                point.failure = Failure(cause, (), advice, server_lost=False, message=message)


SPARE = 1.25
"""Samples are planned longer than ``min_seconds`` by this factor."""

Enough = Callable[[int, Sequence[Sample]], bool]
"""(concurrency, samples so far) -> True when more samples would not change the answer."""


@dataclass(frozen=True)
class Order:
    """What the user asked of this run."""

    concurrencies: tuple[int, ...]
    samples: int
    max_samples: int
    seed: int
    starts: int = 1
    """Server starts on purpose; ``samples`` and ``max_samples`` are of a point at each of them."""

    def until(self, start: int) -> Order:
        """What has to be there when the planned ``start`` ends, in all."""
        more = self.max_samples - self.samples if start == self.starts else 0
        return dataclasses.replace(self, samples=self.samples * start, max_samples=self.samples * start + more)

    @property
    def all(self) -> Order:
        """The same in samples of the whole run."""
        return self.until(self.starts)


def new(recipe: Recipe, order: Order) -> CampaignData:
    """The empty data of a run."""
    retakes = recipe.workload.max_retakes
    return CampaignData({c: PointData(recipe.plan(c), retakes) for c in order.concurrencies})


def run(recipe: Recipe, host: Host, order: Order, enough: Enough, show: Show, data: CampaignData) -> None:
    """Measure all points into ``data``. Server deaths and dirty samples end there, never in an exception; Ctrl-C goes through."""
    dice = random.Random(order.seed)
    for start in range(1, order.starts + 1):
        if start > 1:
            show(f"server start {start} of {order.starts}")
            host.renew()
            data.planned_starts += 1
        if not _one_start(recipe, host, order.until(start), enough, dice, show, data):
            return


def _one_start(
    recipe: Recipe, host: Host, order: Order, enough: Enough, dice: random.Random, show: Show, data: CampaignData
) -> bool:
    """Measure until ``order`` is fulfilled, on fresh servers where one dies. False where there is none to be had, or
    nothing left to measure."""
    sampler = _start(recipe, host, data, order, dice, show)
    while sampler is not None:
        todo = [c for c in order.concurrencies if _wants(data.points[c], order, enough)]
        if not todo:
            return True
        dice.shuffle(todo)
        for concurrency in todo:
            point = data.points[concurrency]
            show(f"C={concurrency}: sample {len(point.samples) + 1} of {order.samples}{_left(data, order)}")
            _attempt(sampler, point, data, dice.randrange(2**31), show)
            if point.failure is not None and point.failure.server_lost:
                host.lost()
                sampler = _start(recipe, host, data, order, dice, show)
                break
    return False


def _start(
    recipe: Recipe, host: Host, data: CampaignData, order: Order, dice: random.Random, show: Show
) -> Sampler | None:
    """A server with every open point warmed up, or None when there is nothing left to measure or no server to be had."""
    open_points = [c for c in order.concurrencies if not data.points[c].closed]
    if not open_points or not _may_start(recipe, data, open_points):
        return None
    data.starts += 1
    began = time.monotonic()
    try:
        sampler = host.sampler(data.starts)
    except NotProved as error:
        data.condemn(error.problems)
        return None
    except ServerError as error:
        _missing(data, open_points, start_failure(error))
        return None
    data.server_seconds += sampler.server.start_seconds or (time.monotonic() - began)
    began = time.monotonic()
    for concurrency in open_points:
        point = data.points[concurrency]
        show(f"C={concurrency}: warm-up, thrown away")
        taken = sampler.take(warmup_plan(point.plan), dice.randrange(2**31), show)
        if taken.failure is not None:
            point.failure = dataclasses.replace(taken.failure, message="during warm-up: " + taken.failure.message)
            if taken.failure.server_lost:
                data.warmup_seconds += time.monotonic() - began
                host.lost()
                return _start(recipe, host, data, order, dice, show)
        elif not point.attempts:  # all samples of a point have one length, whichever start was the first to live
            point.plan = length_to(point.plan, taken, recipe.workload.min_seconds)
    data.warmup_seconds += time.monotonic() - began
    return sampler


def _may_start(recipe: Recipe, data: CampaignData, open_points: list[int]) -> bool:
    deaths = data.starts - data.planned_starts + 1
    if deaths <= recipe.limits.max_restarts:
        return True
    reason = Failure(
        "SERVER_DIED",
        tuple(f"C={c}: {p.failure.message}" for c, p in data.points.items() if p.failure is not None),
        "look at the first point that was lost; this one was not run because the server had died too often",
        server_lost=True,
        message=f"not run: the server died {deaths} times (limits.max_restarts = {recipe.limits.max_restarts})",
    )
    _missing(data, open_points, reason)
    return False


def _missing(data: CampaignData, points: Sequence[int], failure: Failure) -> None:
    for concurrency in points:
        if data.points[concurrency].failure is None:
            data.points[concurrency].failure = failure


def start_failure(error: ServerError) -> Failure:
    """What a server that did not start leaves behind, diagnosed from its log."""
    if error.log is None:  # nothing was started, so there is no log to diagnose: the message is all there is to know
        advice = "mend what the message names and run again"
        message = str(error) if isinstance(error, NotAttached) else f"the server did not start: {error}"
        return Failure(error.cause, (), advice, server_lost=True, message=message)
    text = error.log.read_text(errors="replace") if error.log.is_file() else ""
    found = diagnosis.diagnose(text, exit_code=error.exit_code, client_output="")
    cause = found.cause.name if found.cause.name != "NONE" else "UNKNOWN"
    evidence = tuple(found.evidence) or tuple(line for line in text.splitlines() if line.strip())[-3:]
    return Failure(cause, evidence, found.advice, server_lost=True, message=f"the server did not start: {error}")


def _attempt(sampler: Sampler, point: PointData, data: CampaignData, seed: int, show: Show) -> None:
    taken = sampler.take(point.plan, seed, show)
    point.attempts.append(taken)
    data.client_seconds += taken.seconds
    if taken.counts:
        return
    if taken.failure is not None and taken.failure.server_lost:
        point.failure = taken.failure
        return
    why = taken.failure.message if taken.failure else "; ".join(p.message for p in taken.problems if p.invalid)
    what = f"C={point.plan.concurrency}: thrown away"
    if not point.exhausted:
        show(f"{what} and taken again ({len(point.thrown_away)} of {point.max_retakes}): {why}")
        return
    show(f"{what}, and no more retakes: {why}")
    if not any(t.sample is not None for t in point.thrown_away):
        point.failure = taken.failure  # nothing was ever measured: that is a missing point, not an invalid one


def _wants(point: PointData, order: Order, enough: Enough) -> bool:
    if point.closed:
        return False
    count = len(point.samples)
    if count < order.samples:
        return True
    return count < order.max_samples and not enough(point.plan.concurrency, point.samples)


def warmup_plan(plan: Plan) -> Plan:
    """Two waves of the point's own shapes."""
    return dataclasses.replace(plan, num_prompts=2 * plan.concurrency)


def length_to(plan: Plan, warm: Taken, seconds: float) -> Plan:
    """More prompts where the sample would be too short to mean something. Sized from the warm-up's own rate, with a
    quarter to spare: what was measured first on a fresh server is slower than what follows."""
    if warm.sample is None or warm.sample.duration_s <= 0 or warm.sample.completed < 1:
        return plan
    per_wave = warm.sample.duration_s * plan.concurrency / warm.sample.completed
    waves = -(-plan.num_prompts // plan.concurrency)
    while waves * per_wave < seconds * SPARE:
        waves += 1
    return dataclasses.replace(plan, num_prompts=max(plan.num_prompts, waves * plan.concurrency))


def _left(data: CampaignData, order: Order) -> str:
    done = [t.seconds for p in data.points.values() for t in p.attempts]
    if not done:
        return ""
    missing = sum(max(0, order.samples - len(p.samples)) for p in data.points.values() if not p.closed)
    return f", about {missing * sum(done) / len(done):.0f} s left"
