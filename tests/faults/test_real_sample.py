"""Faults in the middle of a sample on a real CPU server that lives on: the sample goes, the verdict stays right.

The last test ends the server. The tests use one server one after another, so each leaves it as it found it.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from server.bench import SAMPLE_SECONDS, Bench, bench, hard_kill

from perfgate.result import Outcome

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("real-server")]
SHIMS = Path(__file__).parent / "shims"
RETAKES = 2


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says by how many seconds every clock of the server and the client is off."""
    path = tmp_path_factory.mktemp("clock") / "offset"
    path.write_text("0")
    return path


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, clock: Path) -> Iterator[Bench]:
    python_path = os.pathsep.join(filter(None, (str(SHIMS), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": python_path, "STAND_IN_CLOCK": str(clock)}
    with bench(tmp_path_factory.mktemp("real"), environment) as one:
        yield one


def ask(one: Bench, tokens: int = 3, length: int = 1) -> None:
    """One stranger's request: a few tokens, to a server that may be gone meanwhile."""
    body = {"input_ids": list(range(5, 5 + length)), "sampling_params": {"max_new_tokens": tokens}}
    requests.post(f"{one.server.base_url}/generate", json=body, timeout=30)


class Stranger:
    """Asks again and again until it is left; ``wait`` gives the seconds to the next request."""

    def __init__(self, one: Bench, wait: Callable[[], float], length: int = 1) -> None:
        self._one, self._wait, self._length = one, wait, length
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.asked: list[float] = []

    def __enter__(self) -> Stranger:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join(40)

    def _run(self) -> None:
        while not self._over.wait(self._wait()):
            self.asked.append(time.time())
            ask(self._one, length=self._length)


def test_a_quiet_server_passes(live: Bench) -> None:
    found = live.judge(16)
    assert found.outcome is Outcome.PASS, found.point
    assert found.thrown_away() == []


@pytest.mark.quick
@pytest.mark.field_case("X03", "X04")
def test_a_stranger_at_random_times_never_passes(live: Bench) -> None:
    """Two a second on average: no sample of a second and more is likely to miss them all."""
    dice = random.Random(7)
    with Stranger(live, lambda: dice.expovariate(2.0)) as stranger:
        found = live.judge(16)
    assert stranger.asked
    assert found.outcome is Outcome.INVALID, found.point
    assert "stray" in found.point.why
    assert found.point.evidence
    assert len(found.point.samples) <= 2 + RETAKES + 1


def test_one_short_request_of_a_stranger_in_one_sample_costs_that_sample_alone(live: Bench) -> None:
    found = live.judge(16, lambda: ask(live))
    assert found.struck
    assert found.outcome is Outcome.PASS, found.point
    (why,) = found.thrown_away()
    assert "stray" in why


@pytest.mark.quick
def test_a_client_that_is_killed_costs_one_sample(live: Bench) -> None:
    found = live.judge(16, live.client.kill_child)
    assert found.struck
    assert found.outcome is Outcome.PASS, found.point
    (why,) = found.thrown_away()
    assert "CLIENT_FAILED" in why
    assert "-9" in why


def test_a_client_that_is_killed_each_time_is_missing(live: Bench) -> None:
    killed: set[int] = set()
    until = time.monotonic() + 3 * SAMPLE_SECONDS

    def again_and_again() -> None:
        while len(killed) <= RETAKES and time.monotonic() < until:
            child = live.client._child
            if child is not None and child not in killed:
                killed.add(child)
                live.client.kill_child()
            time.sleep(0.01)

    found = live.judge(16, lambda: threading.Thread(target=again_and_again, daemon=True).start())
    assert len(killed) == RETAKES + 1
    assert found.outcome is Outcome.MISSING, found.point
    assert found.point.cause == "CLIENT_FAILED"
    assert len(found.thrown_away()) == RETAKES + 1


@pytest.mark.quick
def test_a_log_that_is_cut_in_a_sample_costs_that_sample(live: Bench) -> None:
    log = live.server.log
    assert log is not None
    found = live.judge(16, lambda: os.truncate(log, 0))
    assert found.struck
    assert found.outcome is Outcome.PASS, found.point
    (why,) = found.thrown_away()
    assert "unreadable_log" in why
    assert b"\0" not in log.read_bytes()
    assert next(c for c in found.result.checks if c.name == "KV capacity").outcome is Outcome.PASS


def test_a_log_that_is_rotated_away_makes_every_later_sample_invalid(live: Bench) -> None:
    log = live.server.log
    assert log is not None
    moved = log.with_suffix(".1")

    def rotate() -> None:
        log.rename(moved)
        log.touch()

    try:
        found = live.judge(16, rotate)
    finally:
        os.replace(moved, log)  # the server still writes to it
    assert found.struck
    assert found.outcome is Outcome.INVALID, found.point
    assert "unreadable_log" in found.point.why


def test_a_log_that_is_deleted_makes_every_later_sample_invalid(live: Bench) -> None:
    log = live.server.log
    assert log is not None
    kept = log.with_suffix(".kept")
    os.link(log, kept)
    try:
        found = live.judge(16, log.unlink)
    finally:
        os.replace(kept, log)
    assert found.outcome is Outcome.INVALID, found.point
    assert "unreadable_log" in found.point.why


def test_a_scheduler_that_stands_still_for_a_while_costs_that_sample(live: Bench) -> None:
    scheduler = live.process("scheduler")

    def pause() -> None:
        scheduler.send_signal(signal.SIGSTOP)
        time.sleep(8)
        scheduler.send_signal(signal.SIGCONT)

    found = live.judge(16, pause)
    assert found.struck
    assert found.outcome is Outcome.PASS, found.point
    (why,) = found.thrown_away()
    assert "standstill" in why


@pytest.mark.parametrize("seconds", [3600, -3600], ids=["an hour on", "an hour back"])
def test_a_clock_that_is_set_in_a_sample_costs_that_sample(
    live: Bench, clock: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """``time.time`` of the server, the client and the gate, which is what their log lines and windows are told by: setting
    the machine's clock would hit everything else on it."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + float(clock.read_text() or 0))

    def step() -> None:
        clock.write_text(str(float(clock.read_text()) + seconds))

    found = live.judge(16, step)
    assert found.struck
    assert found.outcome is Outcome.PASS, found.point
    (why,) = found.thrown_away()
    assert "clock_stepped" in why
    assert found.seconds < 4 * SAMPLE_SECONDS  # deadlines are kept by the steady clock


@pytest.mark.field_case("X04")
def test_a_stranger_once_a_minute_is_found_by_its_beat(live: Bench) -> None:
    """Long samples, so that several beats fall into them: each costs its sample, and the run's end knows the beat by its
    prompts, which are longer than ours. What is left is clean, and counts, unless a beat falls into it that no line shows."""
    work = live.recipe.workload.model_copy(update={"min_seconds": 12.0, "max_retakes": 6})
    slow = live.recipe.model_copy(update={"workload": work})
    began = time.monotonic()
    with Stranger(live, lambda: (10 - (time.monotonic() - began)) % 60 or 60, length=1000) as stranger:
        found = live.judge(1, samples=13, recipe=slow)
    assert len(stranger.asked) >= 3
    assert found.outcome in (Outcome.INVALID, Outcome.PASS), found.point
    hit = [text for text in found.thrown_away() if "stray" in text]
    assert hit, "in 12 of each 13 s there is a sample to hit"
    assert not any("stray" in problem for s in found.point.samples if s.counted for problem in s.problems)
    assert any("every 60 s" in note for note in [*found.result.notes, found.point.why]), found.result


@pytest.mark.quick
@pytest.mark.field_case("B05")
def test_a_scheduler_that_is_killed_in_a_sample_is_missing_with_its_death_as_the_cause(live: Bench) -> None:
    scheduler = live.process("scheduler")
    found = live.judge(16, lambda: hard_kill(scheduler))
    assert found.struck
    assert found.outcome is Outcome.MISSING, found.point
    assert found.point.cause == "SERVER_DIED"
    assert found.point.evidence
    assert found.seconds < 2 * SAMPLE_SECONDS
    assert live.gone
