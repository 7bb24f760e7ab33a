"""The order of a run: interleaved, seeded, patient with dirty samples, and nothing ever missing without a reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perfgate import campaign, recipe
from perfgate.sampler import Failure, Taken
from perfgate.server import ServerError
from perfgate.validity import Problem, ProblemKind
from perfgate.workload import Plan, Sample

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
ORDER = campaign.Order((1, 16, 64), samples=3, max_samples=6, seed=7)
DEATH = Failure("GPU_OOM", ("line",), "do this", server_lost=True, message="the server died")


def good(plan: Plan, duration: float = 5.0) -> Taken:
    sample = Sample(plan.concurrency, plan.num_prompts, duration, plan.input_tokens, plan.output_tokens, 100.0)
    return Taken(plan, sample, seconds=duration)


def dirty(plan: Plan) -> Taken:
    problem = Problem(kind=ProblemKind.STANDSTILL, message="stood still", evidence=())
    return dataclasses.replace(good(plan), problems=(problem,))


class Script:
    """A host whose samplers answer by a script: (start number, plan, how many-th take at that point) -> Taken."""

    def __init__(self, answer: Any = lambda start, plan, n: good(plan), refuse: ServerError | None = None) -> None:
        self.answer, self.refuse = answer, refuse
        self.taken: list[tuple[int, int]] = []
        self.lost_count = self.renewed = 0
        self.counts: Counter[int] = Counter()

    def sampler(self, start_number: int) -> Any:
        if self.refuse is not None:
            raise self.refuse
        host = self

        class Sampler:
            server = type("S", (), {"start_seconds": 10.0})()

            def take(self, plan: Plan, seed: int, show: Any) -> Taken:
                warm = plan.num_prompts == 2 * plan.concurrency
                if not warm:
                    host.taken.append((start_number, plan.concurrency))
                    host.counts[plan.concurrency] += 1
                taken: Taken = host.answer(start_number, plan, 0 if warm else host.counts[plan.concurrency])
                return taken

        return Sampler()

    def lost(self) -> None:
        self.lost_count += 1

    def renew(self) -> None:
        self.renewed += 1


def run(host: Script, enough: Any = lambda c, s: True, order: campaign.Order = ORDER) -> campaign.CampaignData:
    data = campaign.new(RECIPE, order)
    campaign.run(RECIPE, host, order, enough, lambda line: None, data)
    return data


def test_every_round_visits_every_point_once_and_the_seed_fixes_the_order() -> None:
    first, second = Script(), Script()
    run(first)
    run(second)
    visits = [c for _, c in first.taken]
    assert [sorted(visits[i : i + 3]) for i in (0, 3, 6)] == [[1, 16, 64]] * 3
    assert first.taken == second.taken
    orders = {tuple(v[i : i + 3]) for v in [visits] for i in (0, 3, 6)}
    assert len(orders) > 1


def test_sampling_goes_on_to_the_maximum_only_while_the_answer_is_not_clear() -> None:
    host = Script()
    data = run(host, enough=lambda c, samples: c != 16 or len(samples) >= 5)
    assert {c: len(p.samples) for c, p in data.points.items()} == {1: 3, 16: 5, 64: 3}
    data = run(Script(), enough=lambda c, samples: False)
    assert all(len(p.samples) == 6 for p in data.points.values())


def test_each_of_several_starts_has_all_points_and_its_own_samples() -> None:
    host = Script()
    data = run(host, order=dataclasses.replace(ORDER, starts=3))
    assert Counter(host.taken) == {(start, c): 3 for start in (1, 2, 3) for c in (1, 16, 64)}
    assert (data.starts, host.renewed, host.lost_count) == (3, 2, 0)
    lengths = {p.plan.num_prompts for p in data.points.values()}
    assert lengths == {p.plan.num_prompts for p in run(Script()).points.values()}, (
        "the first start's warm-up says how long"
    )


def test_only_the_last_start_goes_on_where_the_answer_is_not_clear() -> None:
    host = Script()
    run(host, enough=lambda c, samples: False, order=dataclasses.replace(ORDER, starts=2))
    assert Counter(start for start, c in host.taken if c == 1) == {1: 3, 2: 6}


def test_starts_on_purpose_do_not_count_as_deaths() -> None:
    def answer(start: int, plan: Plan, n: int) -> Taken:
        return Taken(plan, None, failure=DEATH) if (start, plan.concurrency, n) == (3, 16, 7) else good(plan)

    host = Script(answer)
    data = run(host, order=dataclasses.replace(ORDER, starts=3))
    assert data.points[16].failure is not None
    assert {c: len(data.points[c].samples) for c in (1, 64)} == {1: 9, 64: 9}
    assert (data.starts, host.lost_count) == (4, 1)


def test_a_later_start_that_fails_leaves_no_point_looking_whole() -> None:
    class Once(Script):
        def sampler(self, start_number: int) -> Any:
            if start_number == 2:
                raise ServerError("out of memory")
            return super().sampler(start_number)

    data = run(Once(), order=dataclasses.replace(ORDER, starts=2))
    assert all("out of memory" in p.failure.message for p in data.points.values())


def test_a_server_that_dies_at_one_point_costs_that_point_alone() -> None:
    def answer(start: int, plan: Plan, n: int) -> Taken:
        return Taken(plan, None, failure=DEATH) if plan.concurrency == 16 and n == 2 else good(plan)

    host = Script(answer)
    data = run(host)
    assert data.points[16].failure == DEATH
    assert data.points[1].failure is None
    assert len(data.points[1].samples) == len(data.points[64].samples) == 3
    assert data.starts == 2
    assert host.lost_count == 1


def test_a_server_that_dies_at_every_point_is_not_started_forever() -> None:
    host = Script(lambda start, plan, n: Taken(plan, None, failure=DEATH) if n else good(plan))
    data = run(host)
    assert data.starts == 1 + RECIPE.limits.max_restarts
    assert all(p.failure is not None for p in data.points.values())
    assert sum("not run" in p.failure.message for p in data.points.values() if p.failure) == 1


def test_a_server_that_dies_in_warm_up_is_a_missing_point() -> None:
    host = Script(lambda start, plan, n: Taken(plan, None, failure=DEATH) if plan.concurrency == 64 else good(plan))
    data = run(host)
    assert data.points[64].failure is not None
    assert data.points[64].failure.message.startswith("during warm-up")
    assert len(data.points[1].samples) == 3


def test_a_server_that_does_not_start_leaves_every_point_missing_with_the_reason() -> None:
    data = run(Script(refuse=ServerError("port 5 already answers")))
    assert all(p.failure and "port 5 already answers" in p.failure.message for p in data.points.values())


def test_a_dirty_sample_is_taken_again_and_does_not_count() -> None:
    data = run(Script(lambda s, plan, n: dirty(plan) if plan.concurrency == 16 and n == 1 else good(plan)))
    assert len(data.points[16].samples) == 3
    assert len(data.points[16].thrown_away) == 1
    assert not data.points[16].exhausted


def test_a_point_that_stays_dirty_is_given_up_after_the_stated_number_of_retakes() -> None:
    data = run(Script(lambda s, plan, n: dirty(plan) if plan.concurrency == 16 else good(plan)))
    assert data.points[16].exhausted
    assert len(data.points[16].attempts) == RECIPE.workload.max_retakes + 1
    assert data.points[16].failure is None


def test_a_client_that_never_gives_a_result_makes_the_point_missing_not_invalid() -> None:
    failed = Failure("CLIENT_FAILED", (), "", server_lost=False, message="the client ended with exit code 1")
    data = run(
        Script(lambda s, plan, n: Taken(plan, None, failure=failed) if plan.concurrency == 1 and n else good(plan))
    )
    assert data.points[1].failure == failed
    assert len(data.points[64].samples) == 3


@pytest.mark.parametrize(("duration", "prompts"), [(4.0, 5), (0.2, 50), (2.0, 5)])
def test_a_sample_is_lengthened_until_it_lasts_long_enough(duration: float, prompts: int) -> None:
    # The warm-up takes 2 prompts at C=1 in `duration`, so one prompt takes half of it.
    data = run(Script(lambda s, plan, n: good(plan, duration)), order=dataclasses.replace(ORDER, concurrencies=(1,)))
    assert data.points[1].plan.num_prompts == prompts


def test_interruption_keeps_what_is_measured_and_names_what_is_not() -> None:
    data = campaign.new(RECIPE, ORDER)
    data.points[1].attempts = [good(data.points[1].plan)] * 3
    data.close("UNKNOWN", "interrupted", "again", samples=3)
    assert data.points[1].failure is None
    assert data.points[16].failure is not None


def test_a_death_in_the_first_warm_up_leaves_the_other_points_samples_as_long_as_they_have_to_be() -> None:
    def answer(start: int, plan: Plan, n: int) -> Taken:
        if start == 1 and plan.concurrency == 1:
            return Taken(plan, None, failure=DEATH)
        return good(plan, 0.25 if n == 0 else 5.0)

    plain, after = Script(lambda start, plan, n: good(plan, 0.25 if n == 0 else 5.0)), Script(answer)
    wanted, found = run(plain), run(after)
    assert found.points[1].failure is not None
    assert [found.points[c].plan for c in (16, 64)] == [wanted.points[c].plan for c in (16, 64)]


def test_a_later_start_keeps_the_length_of_the_first() -> None:
    order = dataclasses.replace(ORDER, starts=2)
    data = run(Script(lambda start, plan, n: good(plan, 0.25 / start if n == 0 else 5.0)), order=order)
    assert {c: len({t.plan for t in p.attempts}) for c, p in data.points.items()} == {1: 1, 16: 1, 64: 1}
