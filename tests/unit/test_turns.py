"""The order of an A/B with one server at a time: starts alternate, pairs are of one round, and no half of one is judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfgate import ab, campaign, options, recipe, turns
from perfgate.sampler import Failure, Taken
from perfgate.server import ServerError
from perfgate.server.lifecycle import NotProved
from perfgate.validity import Problem, ProblemKind
from perfgate.workload import Plan, Sample

RECIPES = Path(__file__).parents[2] / "recipes"
RECIPE = recipe.load(RECIPES / "cpu-tiny.toml")
FULL = recipe.load(RECIPES / "v4-flash-nvfp4-tp8-rtxpro6000.toml")
ROUNDS = turns.Rounds(2, 4, samples=2, why="a test")
ORDER = ROUNDS.order(campaign.Order((1, 16), samples=2, max_samples=2, seed=7))
DEATH = Failure("GPU_OOM", ("line",), "do this", server_lost=True, message="the server died")
SECONDS = {"old": 6.0, "new": 5.0}
PROBLEM = Problem(kind=ProblemKind.STANDSTILL, message="stood still", evidence=())


class Servers:
    """Both sides by a script, and what happened in order; there is memory for one server."""

    def __init__(
        self,
        answer: Callable[[str, int, Plan], Taken] | None = None,
        refuse: dict[Any, Any] | None = None,
        warm: dict[str, float] | None = None,
    ):
        self.answer, self.refuse, self.warm = answer, refuse or {}, warm or {"old": 0.5, "new": 0.25}
        self.up: tuple[str, int] | None = None
        self.log: list[tuple[Any, ...]] = []
        self.shown: list[str] = []
        self.data = ab.AbData(old=campaign.new(RECIPE, ORDER), new=campaign.new(RECIPE, ORDER))

    def run(self, enough: ab.Enough = lambda c, pairs: False) -> ab.AbData:
        old, new = (
            ab.Arm(label, RECIPE, Host(self, label), data)
            for label, data in (("old", self.data.old), ("new", self.data.new))
        )
        turns.run(old, new, ORDER, ROUNDS, enough, self.visit, self.shown.append, self.data)
        assert self.up is None, "the last server is gone"
        return self.data

    def visit(self, arm: ab.Arm) -> None:
        assert self.up == (arm.label, arm.data.starts)
        self.log.append(("visit", *self.up))

    def samples(self) -> list[tuple[Any, ...]]:
        """(side, start, C, seed, prompts) of every sample."""
        return [entry[1:] for entry in self.log if entry[0] == "sample"]

    def turns(self) -> list[tuple[str, int]]:
        return [entry[1:] for entry in self.log if entry[0] == "start"]


class Host:
    def __init__(self, servers: Servers, label: str) -> None:
        self.servers, self.label = servers, label

    def sampler(self, start: int) -> Any:
        assert self.servers.up is None, "one server at a time"
        self.servers.log.append(("start", self.label, start))
        if (error := self.servers.refuse.get((self.label, start))) is not None:
            raise error
        self.servers.up = (self.label, start)
        return Sampler(self.servers, self.label, start)

    def lost(self) -> None:
        self.servers.up = None


class Sampler:
    server = type("S", (), {"start_seconds": 10.0})()

    def __init__(self, servers: Servers, label: str, start: int) -> None:
        self.servers, self.label, self.start = servers, label, start

    def take(self, plan: Plan, seed: int, show: Any) -> Taken:
        assert self.servers.up == (self.label, self.start)
        if plan.num_prompts == 2 * plan.concurrency:  # the warm-up
            return self.good(plan, self.servers.warm[self.label])
        self.servers.log.append(("sample", self.label, self.start, plan.concurrency, seed, plan.num_prompts))
        answer = self.servers.answer
        found = answer(self.label, self.start, plan) if answer is not None else self.good(plan, SECONDS[self.label])
        sample = found.sample and dataclasses.replace(found.sample, server_start=self.start)
        return dataclasses.replace(found, sample=sample)

    @staticmethod
    def good(plan: Plan, seconds: float) -> Taken:
        sample = Sample(plan.concurrency, plan.num_prompts, seconds, plan.input_tokens, plan.output_tokens, 100.0)
        return Taken(plan, sample, seconds=seconds)


def good(plan: Plan) -> Taken:
    return Sampler.good(plan, 5.0)


def dirty(plan: Plan) -> Taken:
    return dataclasses.replace(good(plan), problems=(PROBLEM,))


def test_sides_take_turns_and_each_even_round_reverses_the_one_before() -> None:
    servers = Servers()
    servers.run()
    assert servers.turns()[:4] == [("new", 1), ("old", 1), ("old", 2), ("new", 2)]
    labels = [label for label, _ in servers.turns()]
    assert len(labels) == 8
    assert labels[4:6] == labels[7:5:-1]
    again = Servers()
    again.run()
    assert again.log == servers.log, "the seed says it all"


def test_a_side_is_visited_at_the_end_of_each_turn_that_went_well() -> None:
    servers = Servers(refuse={("old", 2): ServerError("out of memory")})
    servers.run()
    assert [entry for entry in servers.log if entry[0] == "visit"] == [("visit", "new", 1), ("visit", "old", 1)]
    places = [i for i, entry in enumerate(servers.log) if entry[0] == "visit"]
    assert servers.log[places[0] - 1][0] == "sample"


def test_a_pair_is_the_same_prompts_in_one_rounds_two_starts() -> None:
    servers = Servers()
    data = servers.run()
    assert {c: len(pairs) for c, pairs in data.pairs.items()} == {1: 8, 16: 8}
    for pairs in data.pairs.values():
        assert [(a.server_start, b.server_start) for a, b in pairs] == [(n, n) for n in (1, 1, 2, 2, 3, 3, 4, 4)]
        assert {(a.duration_s, b.duration_s) for a, b in pairs} == {(SECONDS["old"], SECONDS["new"])}
    asked: dict[tuple[int, int], list[set[int]]] = {}
    for label, start, concurrency, seed, _ in servers.samples():
        asked.setdefault((start, concurrency), [set(), set()])[label == "new"].add(seed)
    assert all(old == new and len(old) == 2 for old, new in asked.values())


def test_all_samples_of_a_point_have_the_length_that_the_first_side_needed() -> None:
    servers = Servers()
    servers.run()
    lengths = {prompts for *_, concurrency, _, prompts in servers.samples() if concurrency == 1}
    assert len(lengths) == 1
    assert lengths.pop() >= 2 * 4.0 / 0.25, "the new side is first, and twice as fast"


def test_a_second_side_too_fast_for_that_length_makes_all_later_samples_longer() -> None:
    servers = Servers(warm={"new": 0.5, "old": 0.05})
    servers.run()
    first, *rest = [s for s in servers.samples() if s[2] == 1]
    assert first[:2] == ("new", 1)
    short = [s for s in rest if s[4] == first[4]]
    assert {s[:2] for s in short} == {("new", 1)}
    assert {s[4] for s in rest if s not in short} == {max(s[4] for s in rest)}
    assert max(s[4] for s in rest) >= 2 * 4.0 / 0.05
    near = Servers(warm={"new": 0.5, "old": 0.45})
    near.run()
    assert len({s[4] for s in near.samples() if s[2] == 1}) == 1, "there is a quarter to spare"


def test_the_first_side_leaves_a_quarter_to_spare_where_the_recipes_prompts_would_just_do() -> None:
    prompts, least = RECIPE.plan(1).num_prompts, RECIPE.workload.min_seconds
    wave = 1.1 * least / prompts
    servers = Servers(warm={"new": 2 * wave, "old": 2 * wave})
    servers.run()
    assert {s[4] * wave >= 1.25 * least for s in servers.samples() if s[2] == 1} == {True}


def test_a_clear_answer_ends_a_point_and_an_open_one_goes_on() -> None:
    data = Servers().run(lambda c, pairs: c == 1)
    assert {c: len(pairs) for c, pairs in data.pairs.items()} == {1: 4, 16: 8}
    done = Servers()
    done.run(lambda c, pairs: True)
    assert len(done.turns()) == 4


def test_a_dirty_sample_is_taken_again_on_the_same_start() -> None:
    spoil = iter([True])
    servers = Servers(lambda label, start, plan: dirty(plan) if next(spoil, False) else good(plan))
    data = servers.run(lambda c, pairs: True)
    assert {c: len(pairs) for c, pairs in data.pairs.items()} == {1: 4, 16: 4}
    assert sum(data.spoilt.values()) == 1
    assert any("thrown away: the new side: stood still" in line for line in servers.shown)
    assert all(s.server_start == t.server_start for pairs in data.pairs.values() for s, t in pairs)


@pytest.mark.parametrize("side", ["old", "new"])
def test_too_many_dirty_samples_condemn_that_point_alone(side: str) -> None:
    servers = Servers(lambda label, _, plan: dirty(plan) if (label, plan.concurrency) == (side, 16) else good(plan))
    data = servers.run(lambda c, pairs: True)
    assert [p.message for p in data.new.points[16].condemned] == [f"the {side} side: stood still"]
    assert data.pairs.get(16, []) == []
    assert len(data.pairs[1]) == 4
    assert len([s for s in servers.samples() if s[0] == side and s[2] == 16]) == 1 + RECIPE.workload.max_retakes


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_server_that_dies_makes_every_open_point_missing_and_ends_the_run(side: str) -> None:
    def dies(label: str, start: int, plan: Plan) -> Taken:
        return Taken(plan, None, failure=DEATH) if (label, start) == (side, 2) else good(plan)

    servers = Servers(dies)
    data = servers.run()
    failures = [p.failure for p in data.new.points.values()]
    assert {f.cause for f in failures} == {"GPU_OOM"}
    assert all(f"the {side} side: the server died" in f.message for f in failures)
    assert len(data.pairs[1]) == len(data.pairs[16]) == 2, "the first round's stay"
    assert servers.turns()[-1] == (side, 2)


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_later_start_that_fails_leaves_what_was_already_clear(side: str) -> None:
    servers = Servers(refuse={(side, 3): ServerError("out of memory")})
    data = servers.run(lambda c, pairs: c == 1)
    assert data.new.points[1].failure is None
    assert len(data.pairs[1]) == 4
    assert "out of memory" in data.new.points[16].failure.message
    assert data.new.points[16].failure.message.startswith(f"the {side} side: ")


def test_a_start_that_is_not_the_patched_server_makes_everything_invalid() -> None:
    servers = Servers(refuse={("new", 2): NotProved([PROBLEM])})
    data = servers.run()
    assert all(p.condemned for p in data.new.points.values())


def test_the_last_server_goes_with_ctrl_c_too() -> None:
    def stopped(label: str, start: int, plan: Plan) -> Taken:
        raise KeyboardInterrupt

    servers = Servers(stopped)
    with pytest.raises(KeyboardInterrupt):
        servers.run()
    assert servers.up is None


def test_servers_that_take_all_memory_take_turns_unasked() -> None:
    assert turns.planned(RECIPE, RECIPE, None, 3) is None
    found = turns.planned(RECIPE, FULL, None, 3)
    assert (found.least, found.most, found.samples) == (3, 6, 3)
    assert "v4-flash-nvfp4-tp8-rtxpro6000 leaves no memory for a second server" in found.note()
    mini = recipe.load(RECIPES / "v4mini-patched.toml")
    assert turns.planned(mini, mini, None, 5) is None, "its pool is capped, so that two fit"
    asked = turns.planned(mini, mini, 4, 5)
    assert (asked.least, asked.most) == (4, 4)


def given(**changes: Any) -> options.Options:
    folder = Path("somewhere")
    made = options.Options(RECIPE, folder, (1,), 3, 3, folder, folder)
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"starts": 0}, "at least one server start"),
        ({"starts": 2, "server_url": "http://localhost:1"}, "--server-url names one that already runs"),
        ({"starts": 3, "against": RECIPE, "profile": True}, "--starts 3"),
        ({"against": FULL, "profile": True}, "leaves no memory for a second server"),
    ],
)
def test_options_that_do_not_fit_are_told(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(options.OptionError, match=said):
        options.check(given(**changes))
    options.check(given(starts=3, against=RECIPE))
    options.check(given(starts=3))


def test_starts_are_a_sides_own_or_the_runs() -> None:
    assert given(starts=3).own_starts == 3
    assert given().own_starts == 1
    assert given(starts=3, against=RECIPE).own_starts == 1
    assert given(starts=3, against=RECIPE).rounds.most == 3
    assert given(starts=1, against=FULL).rounds is None, "side by side where the user wants it"
    assert given(starts=3).rounds is None


def test_the_points_that_a_death_left_unmeasured_name_the_death_and_no_other_points_trouble() -> None:
    three = dataclasses.replace(ORDER, concurrencies=(1, 16, 64))
    data = ab.AbData(old=campaign.new(RECIPE, three), new=campaign.new(RECIPE, three))
    data.new.points[1].failure = dataclasses.replace(DEATH, cause="CLIENT_FAILED", server_lost=False)
    data.new.points[16].failure = DEATH
    turns._close((1, 16, 64), data, three)
    left = data.new.points[64].failure
    assert left is not None
    assert (left.cause, left.message) == ("GPU_OOM", "not run: the server died")
