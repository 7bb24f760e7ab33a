"""The order of an A/B run: pairs side by side in seeded order, and no half of a pair ever judged."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from perfgate import ab, campaign, recipe
from perfgate.sampler import Failure, Taken
from perfgate.server import ServerError
from perfgate.server.lifecycle import NotProved
from perfgate.validity import Problem, ProblemKind
from perfgate.workload import Plan, Sample

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
ORDER = campaign.Order((1, 16), samples=3, max_samples=6, seed=7)
DEATH = Failure("GPU_OOM", ("line",), "do this", server_lost=True, message="the server died")
PROBLEM = Problem(kind=ProblemKind.STANDSTILL, message="stood still", evidence=())


def good(plan: Plan, seconds: float = 5.0) -> Taken:
    sample = Sample(plan.concurrency, plan.num_prompts, seconds, plan.input_tokens, plan.output_tokens, 100.0)
    return Taken(plan, sample, seconds=seconds)


class Side:
    """One server by a script; ``log`` gets every sample of both sides in the order in which they were taken."""

    def __init__(
        self, label: str, log: list[tuple[str, int, int, int]], answer: Any = good, refuse: Any = None
    ) -> None:
        self.label, self.log, self.answer, self.refuse, self.taken = label, log, answer, refuse, 0

    def sampler(self, start_number: int) -> Any:
        if self.refuse is not None:
            raise self.refuse
        side = self

        class Sampler:
            server = type("S", (), {"start_seconds": 10.0})()

            def take(self, plan: Plan, seed: int, show: Any) -> Taken:
                if plan.num_prompts == 2 * plan.concurrency:
                    return good(plan, 0.5 if side.label == "old" else 0.25)
                side.taken += 1
                side.log.append((side.label, plan.concurrency, seed, plan.num_prompts))
                return side.answer(plan)

        return Sampler()

    def lost(self) -> None: ...


def run(old: Any = good, new: Any = good, refuse_old: Any = None, refuse_new: Any = None, enough: Any = None) -> Any:
    """An A/B run by script: its data, what was taken, what was shown."""
    log: list[tuple[str, int, int, int]] = []
    shown: list[str] = []
    data = ab.AbData(old=campaign.new(RECIPE, ORDER), new=campaign.new(RECIPE, ORDER))
    arms = [
        ab.Arm("old", RECIPE, Side("old", log, old, refuse_old), data.old),
        ab.Arm("new", RECIPE, Side("new", log, new, refuse_new), data.new),
    ]
    ab.run(*arms, ORDER, enough or (lambda c, pairs: True), shown.append, data)
    return data, log, shown


def test_samples_come_in_pairs_of_the_same_prompts_and_no_side_always_goes_first() -> None:
    data, log, _ = run(enough=lambda c, pairs: False)
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert all({a[0], b[0]} == {"old", "new"} and a[1:] == b[1:] for a, b in pairs)
    assert {a[0] for a, _ in pairs} == {"old", "new"}
    assert {c: len(p) for c, p in data.pairs.items()} == {1: 6, 16: 6}
    assert run(enough=lambda c, pairs: False)[1] == log, "the seed says it all"


def test_both_sides_take_samples_of_the_longer_ones_length() -> None:
    _, log, _ = run()
    assert len({prompts for _, c, _, prompts in log if c == 1}) == 1
    assert min(prompts for _, c, _, prompts in log if c == 1) >= 2 * 4.0 / 0.25


def test_a_clear_answer_ends_a_point_and_an_open_one_goes_on_to_its_end() -> None:
    data, _, _ = run(enough=lambda c, pairs: c == 1)
    assert {c: len(p) for c, p in data.pairs.items()} == {1: 3, 16: 6}


def test_a_pair_with_one_dirty_half_is_thrown_away_whole_and_names_the_side() -> None:
    dirty = iter([True] + [False] * 99)

    def sometimes(plan: Plan) -> Taken:
        return dataclasses.replace(good(plan), problems=(PROBLEM,)) if next(dirty) else good(plan)

    data, log, shown = run(old=sometimes)
    assert sum(data.spoilt.values()) == 1
    assert {c: len(p) for c, p in data.pairs.items()} == {1: 3, 16: 3}
    assert len(log) == 2 * 7
    assert any("pair thrown away: the old side: stood still" in line for line in shown)


@pytest.mark.parametrize("side", ["old", "new"])
def test_more_spoilt_pairs_than_may_be_condemn_the_point_whichever_side_the_dirt_was_on(side: str) -> None:
    clean = {1: 1, 16: 0}  # C=1 has a good pair, which must not make a verdict

    def mostly_dirty(plan: Plan) -> Taken:
        clean[plan.concurrency] -= 1
        return good(plan) if clean[plan.concurrency] >= 0 else dataclasses.replace(good(plan), problems=(PROBLEM,))

    data, log, _ = run(**{side: mostly_dirty})
    assert {c: len(p) for c, p in data.pairs.items()} == {1: 1}
    assert len(log) == 2 * (1 + 3 + 3), "no more than the retakes allowed"
    for point in data.new.points.values():
        assert [p.message for p in point.condemned] == [f"the {side} side: stood still"]


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_client_that_keeps_failing_makes_the_point_missing_with_its_cause(side: str) -> None:
    failure = Failure("CLIENT_FAILED", (), "", server_lost=False, message="exit code 3")
    data, _, _ = run(**{side: lambda plan: Taken(plan, None, failure=failure)})
    for point in data.new.points.values():
        assert (point.failure.cause, point.failure.message) == ("CLIENT_FAILED", f"the {side} side: exit code 3")


def test_an_interruption_leaves_a_point_with_too_few_pairs_a_reason() -> None:
    data, _, _ = run()
    data.pairs[16].pop()
    data.close("UNKNOWN", "interrupted", "run it again", ORDER.samples)
    assert [p.failure and p.failure.message for p in data.new.points.values()] == [None, "interrupted"]


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_server_that_dies_makes_its_point_missing_and_leaves_the_others_a_reason(side: str) -> None:
    def dies(plan: Plan) -> Taken:
        return good(plan) if plan.concurrency == 1 else Taken(plan, None, failure=DEATH)

    data, _, _ = run(**{side: dies})
    failed = data.new.points[16].failure
    assert (failed.cause, failed.message) == ("GPU_OOM", f"the {side} side: the server died")
    left = data.new.points[1]
    assert len(data.pairs.get(1, [])) == 3 or f"the {side} side: the server died" in left.failure.message


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_side_that_does_not_start_makes_every_point_missing_and_is_named(side: str) -> None:
    data, log, _ = run(**{f"refuse_{side}": ServerError("could not be built")})
    assert log == []
    for point in data.new.points.values():
        assert point.failure.message == f"the {side} side: the server did not start: could not be built"


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_side_whose_patches_are_not_proved_condemns_every_point_and_is_named(side: str) -> None:
    data, log, _ = run(**{f"refuse_{side}": NotProved([PROBLEM])})
    assert log == []
    for point in data.new.points.values():
        assert [p.message for p in point.condemned] == [f"the {side} side: stood still"]


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_server_that_is_lost_in_a_pair_is_put_away_and_the_other_is_kept(side: str) -> None:
    gone: list[str] = []

    class Counted(Side):
        def lost(self) -> None:
            gone.append(self.label)

    data = ab.AbData(old=campaign.new(RECIPE, ORDER), new=campaign.new(RECIPE, ORDER))
    answers: dict[str, Any] = {"old": good, "new": good, side: lambda plan: Taken(plan, None, failure=DEATH)}
    old, new = (
        ab.Arm(label, RECIPE, Counted(label, [], answers[label]), arm)
        for label, arm in (("old", data.old), ("new", data.new))
    )
    ab.run(old, new, ORDER, lambda c, pairs: True, lambda line: None, data)
    assert gone == [side]
    ab.fail(
        old, data.new, 1, Taken(data.new.points[1].plan, None, failure=dataclasses.replace(DEATH, server_lost=False))
    )
    assert gone == [side], "a client that failed costs no server"
