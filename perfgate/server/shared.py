"""One server for all processes of a test run: the first in starts it, the last out stops it (edge)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from perfgate.server import lifecycle, processes
from perfgate.server.lifecycle import Server


class SharedServer:
    """A server kept in ``folder`` for every worker of one run. A user that died does not count."""

    def __init__(self, folder: Path, ledger: Path, stop_seconds: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / "server.json"
        self._lock = FileLock(str(folder / "server.lock"))
        self._ledger, self._stop_seconds = ledger, stop_seconds
        self._mine: Server | None = None
        self._me = [os.getpid(), processes.create_time(os.getpid())]

    def acquire(self, start: Callable[[], Server]) -> Server:
        """The running server, started with ``start`` by whoever comes first. Raises what ``start`` raises."""
        with self._lock:
            state = self._read()
            if state is not None and (server := _alive(state)) is not None:
                state["users"] = [u for u in state["users"] if u != self._me and _lives(u)] + [self._me]
                self._write(state)
                return self._mine if self._mine is not None and self._mine.entry == server.entry else server
            return self._start(start)

    def replace(self, start: Callable[[], Server]) -> Server:
        """Another server in place of one that is lost; the old one's last processes are ended first."""
        with self._lock:
            self._end()
            return self._start(start)

    def drop(self) -> None:
        """End the server now, whoever uses it: it is lost."""
        with self._lock:
            self._end()

    def release(self) -> None:
        """Leave; the last one out stops the server."""
        with self._lock:
            state = self._read()
            if state is None:
                return
            state["users"] = [u for u in state["users"] if u != self._me and _lives(u)]
            if state["users"]:
                self._write(state)
            else:
                self._end()

    def _start(self, start: Callable[[], Server]) -> Server:
        server = start()
        assert server.entry is not None
        self._mine = server
        facts: dict[str, Any] = {
            "base_url": server.base_url,
            "served_name": server.served_name,
            "model": str(server.model),
        }
        facts |= {"log": str(server.log), "start_seconds": server.start_seconds, "info": dict(server.info)}
        facts["start_log"] = server.start_log
        self._write({"users": [self._me], "entry": asdict(server.entry), **facts})
        return server

    def _end(self) -> None:
        state = self._read()
        if state is not None:
            lifecycle.stop_entry(processes.Entry(**state["entry"]), self._ledger, self._stop_seconds)
            self._state.unlink(missing_ok=True)
        if self._mine is not None and self._mine.process is not None:
            self._mine.process.wait(timeout=10)
        self._mine = None

    def _read(self) -> dict[str, Any] | None:
        try:
            value: dict[str, Any] = json.loads(self._state.read_text())
        except FileNotFoundError:
            return None
        return value

    def _write(self, state: dict[str, Any]) -> None:
        draft = self._state.with_suffix(".tmp")
        draft.write_text(json.dumps(state, default=str))
        os.replace(draft, self._state)


def _alive(state: dict[str, Any]) -> Server | None:
    entry = processes.Entry(**state["entry"])
    server = Server(
        base_url=state["base_url"],
        served_name=state["served_name"],
        info=state["info"],
        model=Path(state["model"]),
        log=Path(state["log"]),
        entry=entry,
        start_seconds=state["start_seconds"],
        start_log=state["start_log"],
    )
    return server if server.alive() else None


def _lives(user: list[float]) -> bool:
    return processes.is_process(int(user[0]), user[1])
