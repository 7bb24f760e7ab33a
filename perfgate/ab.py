"""A/B: two servers one recipe apart, measured in pairs whose order is drawn anew each time, so that drift hits both alike."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perfgate.campaign import CampaignData, Host, Order, PointData, length_to, start_failure, warmup_plan
from perfgate.recipe import Recipe
from perfgate.sampler import Failure, Sampler, Show, Taken
from perfgate.server import ServerError
from perfgate.server.lifecycle import NotProved
from perfgate.workload import Plan, Sample

Pair = tuple[Sample, Sample]
Enough = Callable[[int, Sequence[Pair]], bool]


@dataclass
class Arm:
    """One side of the comparison. ``label`` is what messages call it."""

    label: str
    recipe: Recipe
    host: Host
    data: CampaignData
    sampler: Sampler | None = None

    def says(self, message: str) -> str:
        """The message with the side that it is about."""
        return f"the {self.label} side: {message}"


@dataclass
class AbData:
    """Both sides, and the pairs of samples that count, by point. A pair is (old, new)."""

    old: CampaignData
    new: CampaignData
    pairs: dict[int, list[Pair]] = field(default_factory=dict)
    spoilt: dict[int, int] = field(default_factory=dict)

    def close(self, cause: str, message: str, advice: str, samples: int) -> None:
        """Give every point with fewer than ``samples`` pairs the same reason for being missing."""
        for concurrency, point in self.new.points.items():
            if not point.closed and len(self.pairs.get(concurrency, [])) < samples:
                point.failure = Failure(cause, (), advice, server_lost=False, message=message)


def run(old: Arm, new: Arm, order: Order, enough: Enough, show: Show, data: AbData) -> None:
    """Measure pairs at all points. What a server or client did ends in the data; Ctrl-C goes through.

    A server that dies makes its point missing, and so are all that were still to come: a pair needs both servers, and
    a fresh one would no longer be the one that the earlier pairs were taken on.
    """
    dice = random.Random(order.seed)
    if not (open_side(old, data, show) and open_side(new, data, show)):
        return
    _warm_up(old, new, order, dice, show)
    while todo := [c for c in order.concurrencies if wants(c, data, order, enough)]:
        dice.shuffle(todo)
        for concurrency in todo:
            done = len(data.pairs.get(concurrency, []))
            show(f"C={concurrency}: pair {done + 1} of {order.samples}")
            if not _pair(old, new, concurrency, data, dice, show):
                failed = data.new.points[concurrency].failure
                assert failed is not None
                data.close(failed.cause, f"not run: {failed.message}", failed.advice, order.samples)
                return
            give_up(old, new, concurrency, data)


def open_side(arm: Arm, data: AbData, show: Show, points: Sequence[int] | None = None) -> bool:
    """Start a side's server. Where that fails, ``points`` (default: all) are missing, or invalid where a server came up
    that is not the one asked for."""
    show(f"starting the {arm.label} server, recipe {arm.recipe.name}")
    arm.data.starts += 1
    try:
        arm.sampler = arm.host.sampler(arm.data.starts)
    except NotProved as error:
        data.new.condemn([dataclasses.replace(p, message=arm.says(p.message)) for p in error.problems])
        return False
    except ServerError as error:
        found = start_failure(error)
        failure = dataclasses.replace(found, message=arm.says(found.message))
        for concurrency in data.new.points if points is None else points:
            point = data.new.points[concurrency]
            point.failure = point.failure or failure
        return False
    arm.data.server_seconds += arm.sampler.server.start_seconds or 0.0
    return True


def _warm_up(old: Arm, new: Arm, order: Order, dice: random.Random, show: Show) -> None:
    """One discarded sample a point and side; both sides then take samples of the same length, the longer of the two."""
    for concurrency in order.concurrencies:
        plans: list[Plan] = []
        for arm in (old, new):
            show(f"C={concurrency}: warm-up of the {arm.label} server, thrown away")
            assert arm.sampler is not None
            plan = arm.data.points[concurrency].plan
            taken = arm.sampler.take(warmup_plan(plan), dice.randrange(2**31), show)
            fail(arm, new.data, concurrency, taken)
            plans.append(length_to(plan, taken, arm.recipe.workload.min_seconds))
        longest = max(plans, key=lambda p: p.num_prompts)
        for arm in (old, new):
            arm.data.points[concurrency].plan = longest


def _pair(old: Arm, new: Arm, concurrency: int, data: AbData, dice: random.Random, show: Show) -> bool:
    """One pair, kept if both of its samples count. False where a server was lost."""
    sides = [old, new]
    dice.shuffle(sides)
    seed = dice.randrange(2**31)  # both sides answer the same prompts
    taken: dict[str, Taken] = {}
    for arm in sides:
        taken[arm.label] = got = take(arm, concurrency, seed, show)
        if got.failure is not None and got.failure.server_lost:
            fail(arm, data.new, concurrency, got)
            return False
    first, second = taken[old.label], taken[new.label]
    if first.counts and second.counts and first.sample is not None and second.sample is not None:
        data.pairs.setdefault(concurrency, []).append((first.sample, second.sample))
        return True
    data.spoilt[concurrency] = data.spoilt.get(concurrency, 0) + 1
    show(f"C={concurrency}: pair thrown away: {'; '.join(reasons(old, first) + reasons(new, second))}")
    return True


def take(arm: Arm, concurrency: int, seed: int, show: Show) -> Taken:
    """One sample of a side, kept with its attempts."""
    assert arm.sampler is not None
    point = arm.data.points[concurrency]
    got = arm.sampler.take(point.plan, seed, show)
    point.attempts.append(got)
    arm.data.client_seconds += got.seconds
    return got


def fail(arm: Arm, new: CampaignData, concurrency: int, taken: Taken) -> None:
    """Make the point missing by what a sample failed of, if it did, unless it is already, and put away a server that is lost.
    ``new``: the new side's data."""
    point = new.points[concurrency]
    if taken.failure is not None and taken.failure.server_lost:
        arm.host.lost()
    if point.failure is None and taken.failure is not None:
        point.failure = dataclasses.replace(taken.failure, message=arm.says(taken.failure.message))


def give_up(old: Arm, new: Arm, concurrency: int, data: AbData) -> None:
    """Close a point of which more pairs were spoilt than may be, with what spoilt them: what is left makes no verdict,
    whichever side the dirt was on."""
    point = data.new.points[concurrency]
    if data.spoilt.get(concurrency, 0) <= point.max_retakes or point.failure is not None:
        return
    thrown = [(arm, taken) for arm in (old, new) for taken in arm.data.points[concurrency].thrown_away]
    if failed := [(arm, taken.failure) for arm, taken in thrown if taken.failure is not None]:
        arm, failure = failed[-1]
        point.failure = dataclasses.replace(failure, message=arm.says(failure.message))
        return
    found = [dataclasses.replace(p, message=arm.says(p.message)) for arm, t in thrown for p in t.problems if p.invalid]
    data.new.condemn(list(dict.fromkeys(found)), [concurrency])


def wants(concurrency: int, data: AbData, order: Order, enough: Enough) -> bool:
    """Whether a point needs more pairs."""
    point: PointData = data.new.points[concurrency]
    if point.closed:
        return False
    pairs = data.pairs.get(concurrency, [])
    if len(pairs) < order.samples:
        return True
    return len(pairs) < order.max_samples and not enough(concurrency, pairs)


def reasons(arm: Arm, taken: Taken) -> list[str]:
    """Why a sample does not count, with its side."""
    if taken.failure is not None:
        return [arm.says(taken.failure.message)]
    return [arm.says(p.message) for p in taken.problems if p.invalid]
