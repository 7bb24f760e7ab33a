"""Ctrl-C in the moment in which a process is being started, or ended: none is left that nobody knows."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from perfgate import interruptions, recipe
from perfgate.server import command, lifecycle, processes
from perfgate.workload.client import Client

TINY = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A run's, whatever this process was started with: behind a shell's & Ctrl-C is ignored."""
    assert threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in interruptions.SIGNALS}
    for number in before:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Ctrl-C right after a process was started, before the caller has it; those processes."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **named))
        signal.raise_signal(signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def gone(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; ended here if not."""
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


@pytest.mark.timeout(60)
def test_the_client_that_is_being_started_ends(tmp_path: Path, interrupted: list[subprocess.Popen[bytes]]) -> None:
    with pytest.raises(KeyboardInterrupt):
        Client(tmp_path / "preload.log", {"PYTHONPATH": str(tmp_path)})
    (process,) = interrupted
    assert process.returncode == -signal.SIGKILL, (
        "without its imports it would end by itself, and with them in a minute"
    )
    assert gone(process)


@pytest.mark.timeout(60)
def test_the_server_that_is_being_started_ends_and_leaves_the_ledger(
    tmp_path: Path, interrupted: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "argv", lambda *unused: SLEEP)
    with pytest.raises(KeyboardInterrupt):
        lifecycle.start(TINY, tmp_path, tmp_path / "server.log", tmp_path / "ledger")
    (process,) = interrupted
    assert gone(process)
    assert list((tmp_path / "ledger").iterdir()) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("number", "waits"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_while_a_server_is_ended_ctrl_c_leaves_it_its_grace_and_sigterm_does_not(
    number: signal.Signals, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    born = processes.create_time(process.pid)
    entry = processes.Entry("t-mark", process.pid, born, 1, 0.0, 1, "log")
    looked = 0
    real = processes._alive

    def alive(one: psutil.Process) -> bool:
        nonlocal looked
        looked += 1
        if looked == 1:
            signal.raise_signal(number)
        return real(one)

    monkeypatch.setattr(processes, "_alive", alive)
    assert lifecycle.stop_entry(entry, tmp_path, grace_seconds=2.0) == [process.pid]
    process.wait()
    assert (looked > 5) is waits
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_held_back_is_raised_at_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with interruptions.held_back():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done


def test_a_process_started_in_the_block_can_be_interrupted() -> None:
    with interruptions.held_back():
        process = subprocess.Popen(SLEEP)
    process.send_signal(signal.SIGTERM)
    assert gone(process)


def test_another_thread_is_never_interrupted_and_sets_no_handlers() -> None:
    noted: list[object] = []

    def work() -> None:
        with interruptions.held_back() as seen:
            noted.append(seen)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert noted == [[]]
