"""Finding and ending the processes of a server by its mark, and nothing else (edge)."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from perfgate.server.command import MARK


@dataclass(frozen=True)
class Entry:
    """A started server as the ledger keeps it, so that a later run can find what a killed one left behind."""

    server_id: str
    pid: int
    create_time: float
    owner_pid: int
    owner_create_time: float
    port: int
    log: str


def members(entry: Entry) -> list[psutil.Process]:
    """Every live process of a server: its session (it is started in one of its own), and whatever carries its mark.

    The mark alone does not do: SGLang's scheduler and detokenizer rename themselves, which overwrites their visible
    environment. The session alone does not either: a child may have left it. A session's number is not given out again
    while any member lives, so a leader of another age means that all of ours are gone.
    """
    session = None if _is_other(entry.pid, entry.create_time) else entry.pid
    found = []
    for pid in psutil.pids():
        try:
            # Not process_iter, which keeps what it knew of a number: numbers are given out again.
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            if os.getsid(process.pid) == session or process.environ().get(MARK) == entry.server_id:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone, or another user's: not ours
    return found


def end(entry: Entry, grace_seconds: float, hurry: Callable[[], bool] = lambda: False) -> list[int]:
    """End all processes of a server: SIGTERM to its root, then SIGKILL to what is left after ``grace_seconds``, or as soon as
    ``hurry()`` says so. Returns the pids killed."""
    deadline = time.monotonic() + grace_seconds
    living = members(entry)
    roots = [p for p in living if not _parent_in(p, living)]
    _each(roots, "terminate")
    while living and time.monotonic() < deadline and not hurry():
        time.sleep(0.1)
        living = [p for p in living if _alive(p)] or members(entry)
    killed = [p.pid for p in living]
    stop_killing = time.monotonic() + 10
    while living and time.monotonic() < stop_killing:
        _each(living, "kill")
        time.sleep(0.1)  # not psutil.wait_procs: it would reap our child and hide its exit code from Popen
        living = members(entry)
    if living:
        raise RuntimeError(f"server {entry.server_id}: pids {[p.pid for p in living]} survive SIGKILL; look by hand")
    return killed


def listener_pids(port: int) -> list[int]:
    """The pids that listen on a TCP port of this host (0 for one that cannot be seen)."""
    return sorted(
        {
            connection.pid or 0
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        }
    )


def write_entry(folder: Path, entry: Entry) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{entry.server_id}.json"
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps(asdict(entry)))
    os.replace(draft, path)
    return path


def end_leftovers(folder: Path, grace_seconds: float = 10.0) -> list[str]:
    """End servers whose owner is gone. Returns a line for each, to be shown. A live owner's server is left alone."""
    lines = []
    for path in sorted(folder.glob("*.json")):
        try:
            entry = Entry(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            lines.append(f"removed an unreadable entry of the server ledger: {path.name}")
            path.unlink(missing_ok=True)
            continue
        if is_process(entry.owner_pid, entry.owner_create_time):
            continue
        living = members(entry)
        if living:
            end(entry, grace_seconds)
            pids = ", ".join(str(p.pid) for p in living)
            lines.append(f"ended a server that run {entry.owner_pid} left behind (port {entry.port}, pids {pids})")
        path.unlink(missing_ok=True)
    return lines


def create_time(pid: int) -> float:
    return float(psutil.Process(pid).create_time())


def is_process(pid: int, created: float) -> bool:
    """Whether ``pid`` is still the process that was created then, and not a later one of the same number."""
    try:
        return abs(create_time(pid) - created) < 1.0
    except psutil.Error:
        return False


def _is_other(pid: int, created: float) -> bool:
    return psutil.pid_exists(pid) and not is_process(pid, created)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _parent_in(process: psutil.Process, others: Iterable[psutil.Process]) -> bool:
    try:
        return process.ppid() in {p.pid for p in others}
    except psutil.Error:
        return False


def _each(processes: Iterable[psutil.Process], method: str) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            getattr(process, method)()
