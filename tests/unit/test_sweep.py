"""The warm-up sweep: exact lengths, one at a time, repeated until no request stands still, and never for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from perfgate import sweep


class Machine:
    """A clock and a server: the first ``compiling`` requests of each length take ``slow`` seconds, the rest 0.1."""

    def __init__(self, compiling: int = 1, slow: float = 30.0) -> None:
        self.now, self.compiling, self.slow = 0.0, compiling, slow
        self.prompts: list[list[int]] = []
        self.timeouts: list[float] = []

    def send(self, ids: Sequence[int], timeout: float) -> None:
        seen = sum(len(p) == len(ids) for p in self.prompts)
        self.prompts.append(list(ids))
        self.timeouts.append(timeout)
        self.now += self.slow if seen < self.compiling else 0.1

    def run(self, lengths: Sequence[int] = (192, 256), **changes: Any) -> sweep.Swept:
        given: dict[str, Any] = {"vocabulary": 1000, "seed": 1, "stall_seconds": 1.0, "max_rounds": 3}
        given |= {"deadline_seconds": 600.0, "show": lambda line: None, "clock": lambda: self.now} | changes
        return sweep.sweep(lengths, self.send, **given)


def test_it_ends_with_the_first_round_in_which_nothing_stood_still() -> None:
    machine = Machine()
    done = machine.run()
    assert (done.rounds, done.clean, done.seconds) == (2, True, pytest.approx(60.2))
    assert [len(p) for p in machine.prompts] == [192, 256, 192, 256]


def test_prompts_are_random_ids_of_the_vocabulary_the_same_for_the_same_seed() -> None:
    one, two, three = Machine(), Machine(), Machine()
    one.run()
    two.run()
    three.run(seed=2)
    assert one.prompts == two.prompts != three.prompts
    assert one.prompts[0] != one.prompts[2]
    assert all(sweep.FIRST_ID <= token < 1000 for p in one.prompts for token in p)


def test_rounds_that_do_not_help_are_ended_and_said() -> None:
    done = Machine(compiling=99, slow=5.0).run()
    assert (done.rounds, done.clean) == (3, False)
    assert "5.0 s at" in done.note
    assert "max_rounds" in done.note


def test_the_deadline_bounds_each_request_and_the_whole() -> None:
    machine = Machine(slow=400.0)
    with pytest.raises(sweep.SweepTimeout, match=r"within 600 s: round 2 of at most 3, 0 of 2"):
        machine.run()
    assert machine.timeouts == [600.0, 200.0]


def test_progress_names_the_round_and_the_length() -> None:
    lines: list[str] = []
    Machine(compiling=0).run(show=lines.append)
    assert lines == [
        "warm-up sweep: round 1, prompt of 192 tokens (1 of 2)",
        "warm-up sweep: round 1, prompt of 256 tokens (2 of 2)",
    ]
