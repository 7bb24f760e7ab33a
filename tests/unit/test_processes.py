"""A server's processes are found and ended, whatever they did to hide, and nobody else's are touched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from perfgate.server import processes
from perfgate.server.command import MARK

Spawn = Callable[..., tuple[subprocess.Popen[bytes], processes.Entry]]


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    started: list[subprocess.Popen[bytes]] = []

    def make(
        code: str, mark: str = "t-mark", owner: tuple[int, float] | None = None
    ) -> tuple[subprocess.Popen[bytes], processes.Entry]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=os.environ | {MARK: mark}, start_new_session=True, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        pid, born = owner or (os.getpid(), processes.create_time(os.getpid()))
        return process, processes.Entry(mark, process.pid, processes.create_time(process.pid), pid, born, 1, "log")

    yield make
    for process in started:
        process.kill()
        process.wait()


SLEEP = "import time; print(1, flush=True); time.sleep(60)"
FAMILY = (
    "import os, subprocess, sys, time\n"
    "env = {k: v for k, v in os.environ.items() if not k.startswith('PERFGATE')}\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env=env)\n"
    "print(child.pid, flush=True); time.sleep(60)"
)
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


def test_a_child_that_lost_the_mark_is_still_a_member(spawn: Spawn) -> None:
    process, entry = spawn(FAMILY)
    children = psutil.Process(process.pid).children()
    assert {p.pid for p in processes.members(entry)} == {process.pid, *(c.pid for c in children)}


def test_a_number_that_was_given_out_again_is_seen_as_what_it_is_now(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psutil.process_iter keeps what it made for a number, also when another process has it by now."""
    process, entry = spawn(SLEEP)
    stale = psutil.Process(process.pid)

    def gone() -> str:
        raise psutil.NoSuchProcess(process.pid)

    monkeypatch.setattr(stale, "status", gone)
    monkeypatch.setitem(psutil._pmap, process.pid, stale)
    assert [p.pid for p in processes.members(entry)] == [process.pid]


def test_orphans_are_ended_after_the_root_was_killed(spawn: Spawn) -> None:
    process, entry = spawn(FAMILY)
    (child,) = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    processes.end(entry, grace_seconds=1)
    assert not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE


def test_what_ignores_sigterm_is_killed_and_named(spawn: Spawn) -> None:
    process, entry = spawn(STUBBORN)
    assert processes.end(entry, grace_seconds=0.5) == [process.pid]
    assert process.wait(timeout=5) == -9


def test_a_stranger_with_the_same_session_number_is_left_alone(spawn: Spawn) -> None:
    process, entry = spawn(SLEEP, mark="stranger")
    older = processes.Entry("other-mark", entry.pid, entry.create_time - 1000, 1, 0.0, 1, "log")
    assert processes.end(older, grace_seconds=0.2) == []
    assert process.poll() is None


def test_a_leftover_of_a_dead_run_is_ended_and_a_live_runs_server_is_not(spawn: Spawn, tmp_path: Path) -> None:
    dead, dead_entry = spawn(SLEEP, mark="dead-run", owner=(2**22 + 5, 0.0))
    live, live_entry = spawn(SLEEP, mark="live-run")
    for entry in (dead_entry, live_entry):
        processes.write_entry(tmp_path, entry)
    lines = processes.end_leftovers(tmp_path, grace_seconds=2)
    assert len(lines) == 1
    assert str(dead.pid) in lines[0]
    assert dead.wait(timeout=5) is not None
    assert live.poll() is None
    assert [p.name for p in tmp_path.iterdir()] == ["live-run.json"]


def test_an_owner_whose_pid_was_given_out_again_counts_as_dead(spawn: Spawn, tmp_path: Path) -> None:
    process, entry = spawn(SLEEP, mark="reused", owner=(os.getpid(), 12345.0))
    processes.write_entry(tmp_path, entry)
    assert processes.end_leftovers(tmp_path, grace_seconds=2)
    assert process.wait(timeout=5) is not None


def test_the_listener_on_a_port_is_found() -> None:
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert processes.listener_pids(server.getsockname()[1]) == [os.getpid()]
    time.sleep(0.05)
    assert processes.listener_pids(1) == []
