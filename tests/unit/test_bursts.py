"""The warm-up's bursts: every number of requests, again until a round compiles nothing, and never for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perfgate import bursts, sweep


class Machine:
    """A clock, a server and its cache: the first ``compiling`` bursts of each size leave a compiled file."""

    def __init__(self, compiling: int = 1) -> None:
        self.now, self.compiling = 0.0, compiling
        self.sent: list[tuple[list[list[int]], list[int]]] = []
        self.files: list[float] = []

    def send(self, prompts: Sequence[Sequence[int]], lengths: Sequence[int], timeout: float) -> None:
        seen = sum(len(sent) == len(prompts) for sent, _ in self.sent)
        self.sent.append(([list(one) for one in prompts], list(lengths)))
        self.now += 1.0
        if seen < self.compiling:
            self.files.append(self.now)

    def compiled(self, since: float) -> int:
        return sum(at >= since for at in self.files)

    def run(self, sizes: Sequence[int] = (1, 4), **changes: Any) -> bursts.Burst:
        given: dict[str, Any] = {"prompt_tokens": 8, "vocabulary": 1000, "seed": 1, "max_rounds": 4}
        given |= {"deadline_seconds": 60.0, "show": lambda line: None, "clock": lambda: self.now}
        given |= {"wall": lambda: self.now + 0.5, "compiled": self.compiled} | changes
        return bursts.bursts(sizes, self.send, given.pop("compiled"), **given)


def test_it_ends_with_the_first_round_that_compiled_nothing() -> None:
    machine = Machine(compiling=2)
    done = machine.run()
    assert (done.rounds, done.compiled) == (3, 0)
    assert [len(prompts) for prompts, _ in machine.sent] == [1, 4] * 3
    assert "still" not in done.note


def test_one_that_never_ends_compiling_is_ended_and_told() -> None:
    done = Machine(compiling=99).run(max_rounds=3)
    assert (done.rounds, done.compiled) == (3, 2)
    assert "2 files were still compiled" in done.note


def test_without_a_cache_to_look_into_there_is_one_round() -> None:
    machine = Machine(compiling=99)
    done = machine.run(compiled=None)
    assert (done.rounds, done.compiled) == (1, None)
    assert "still" not in done.note


def test_prompts_are_random_ids_of_the_length_that_is_asked_and_no_two_are_alike() -> None:
    machine = Machine()
    machine.run(prompt_tokens=9000)
    ids = [prompt for prompts, _ in machine.sent for prompt in prompts]
    assert {len(prompt) for prompt in ids} == {bursts.PROMPT_TOKENS}
    assert len({tuple(prompt) for prompt in ids}) == len(ids)
    assert all(sweep.FIRST_ID <= token < 1000 for prompt in ids for token in prompt)


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 64])
def test_the_decode_batch_passes_through_every_power_of_two(size: int) -> None:
    lengths = bursts.output_lengths(size)
    assert len(lengths) == size
    running = {sum(length >= step for length in lengths) for step in range(1, max(lengths) + 1)}
    powers = {(count - 1).bit_length() for count in running}
    assert powers == set(range((size - 1).bit_length() + 1))
    assert max(lengths) <= 2 * (size.bit_length() + 1)


def test_the_deadline_holds() -> None:
    with pytest.raises(sweep.SweepTimeout, match="round 2, 1 prompts"):
        Machine(compiling=99).run(deadline_seconds=2.0)
