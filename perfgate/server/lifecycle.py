"""Starting one SGLang server, proving that it is the one that was asked for, and stopping it (edge)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfgate import interruptions
from perfgate.recipe import Recipe
from perfgate.server import command, http, processes
from perfgate.validity import Problem

READY_LINE = b"The server is fired up and ready to roll!"
PLUGIN_FAILURES = (b"Failed to load plugin", b"Failed to execute general plugin", b"Failed to apply hooks")
BIND_FAILURE = b"error while attempting to bind on address"
"""uvicorn's line where somebody took the port during the start. SGLang 0.5.15 does not end after it: it would be waited for
until the deadline."""
HIGHEST_PORT = 55_535
"""SGLang listens for gRPC 10,000 above its port and ends where that is no port (srt/server_args.py)."""

START_LOG_BYTES = 4 * 2**20

MIN_FREE_BYTES = 256 * 1024 * 1024

Progress = Callable[[str], None]


class ServerError(RuntimeError):
    """A server that could not be started, or is not the one asked for. ``log`` is its log, where there is one; ``cause``
    names what is known without one (a ``diagnosis.Cause``)."""

    def __init__(
        self, message: str, log: Path | None = None, exit_code: int | None = None, cause: str = "UNKNOWN"
    ) -> None:
        super().__init__(message)
        self.log = log
        self.exit_code = exit_code
        self.cause = cause


class NotAttached(ServerError):
    """A server that already runs, by its address, and cannot be used or is not what the recipe describes."""


class NotProved(ServerError):
    """A server that came up and does not run what its recipe asks for: what it would measure is something else."""

    def __init__(self, problems: Sequence[Problem], log: Path | None = None) -> None:
        super().__init__("; ".join(p.message for p in problems), log)
        self.problems = tuple(problems)


DEADLINE_CODE = 124
"""Exit code given to the diagnosis for whatever the harness stopped at its deadline, as ``timeout`` does."""


@dataclass
class Server:
    """A server that answers. ``process`` is None for one that this run did not start."""

    base_url: str
    served_name: str
    info: Mapping[str, Any]
    model: Path | None
    log: Path | None = None
    entry: processes.Entry | None = None
    start_seconds: float | None = None
    start_log: str = field(default="", repr=False)
    """What it said until it was ready, kept here: the file can be cut or rotated while it runs. Empty where not known."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def owned(self) -> bool:
        return self.entry is not None

    def pids(self) -> set[int]:
        """The live processes of a server that was started here."""
        return set() if self.entry is None else {p.pid for p in processes.members(self.entry)}

    def exit_code(self) -> int | None:
        """The exit code of the started process, or None while it runs (or where it is not ours to wait for)."""
        return self.process.poll() if self.process is not None else None

    def alive(self) -> bool:
        """Whether the server's processes are there and one of them still owns the port."""
        if self.entry is None:
            return True
        return self.exit_code() is None and bool(self.pids() & set(processes.listener_pids(self.port)))

    @property
    def port(self) -> int:
        return int(self.base_url.rsplit(":", 1)[1].split("/")[0])


def start(
    recipe: Recipe,
    model: Path,
    log: Path,
    ledger: Path,
    port: int | None = None,
    progress: Progress = lambda line: None,
    extra_env: Mapping[str, str] | None = None,
) -> Server:
    """Start the recipe's server and return once it has proved to be ready and itself.

    Raises ServerError when the port answers already, the process ends, the deadline passes, a plug-in failed, another
    process owns the port, or ``/server_info`` disagrees with the recipe. Whatever was started is ended first.
    """
    port = _claim_port(port)
    _need_space(log.parent)
    server_id = uuid.uuid4().hex
    served_name = f"perfgate-{recipe.name}-{server_id[:12]}"
    argv = command.argv(recipe, model, port, served_name)
    env = command.environment(recipe, os.environ, server_id) | dict(extra_env or {})
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    began = time.monotonic()
    entry: processes.Entry | None = None
    try:
        # A server without an entry in the ledger is one that no later run would end.
        with interruptions.held_back():
            process = _launch(argv, env, log)
            entry = processes.Entry(
                server_id=server_id,
                pid=process.pid,
                create_time=processes.create_time(process.pid),
                owner_pid=os.getpid(),
                owner_create_time=processes.create_time(os.getpid()),
                port=port,
                log=str(log),
            )
            processes.write_entry(ledger, entry)
        _wait_ready(process, log, recipe.limits.start_seconds, progress)
        seconds = time.monotonic() - began
        server = Server(
            base_url=f"http://127.0.0.1:{port}",
            served_name=served_name,
            info={},
            model=model,
            log=log,
            entry=entry,
            start_seconds=seconds,
            start_log=_start_of(log),
            process=process,
        )
        server.info = _identity(recipe, server)
    except BaseException as error:  # Ctrl-C too must leave no process behind
        if entry is None:
            raise
        stop_entry(entry, ledger, grace_seconds=2.0)
        process.wait(timeout=10)
        if isinstance(error, http.ServerHttpError):
            raise ServerError(f"the server came up and does not answer: {error}", log, process.returncode) from error
        raise
    return server


def attach(base_url: str, recipe: Recipe, model: Path | None) -> Server:
    """A server that already runs. Its processes are not ours: they are neither checked nor stopped. Raises NotAttached."""
    base_url = base_url.rstrip("/")
    try:
        info = http.server_info(base_url)
    except http.ServerHttpError as error:
        raise NotAttached(
            f"--server-url {base_url}: {error}; is the server up, and is this its base address, as http://HOST:PORT?"
        ) from None
    served = str(info.get("served_model_name") or "")
    if wrong := command.disagreements(recipe, info, served):
        raise NotAttached(f"--server-url {base_url} is not what recipe {recipe.name} describes: " + "; ".join(wrong))
    return Server(base_url=base_url, served_name=served, info=info, model=model)


def stop(server: Server, ledger: Path, grace_seconds: float) -> list[int]:
    """Stop a server that was started here; returns pids that SIGTERM did not end. A server that is not ours is left alone."""
    if server.entry is None:
        return []
    killed = stop_entry(server.entry, ledger, grace_seconds)
    if server.process is not None:
        server.process.wait(timeout=10)
    return killed


def stop_entry(entry: processes.Entry, ledger: Path, grace_seconds: float) -> list[int]:
    """End a server's processes and strike it from the ledger.

    A second Ctrl-C must not leave half of a server behind. SIGTERM is a CI runner's last word before it kills: no more grace.
    """
    with interruptions.held_back(again=False) as noted:
        killed = processes.end(entry, grace_seconds, lambda: signal.SIGTERM in noted)
        (ledger / f"{entry.server_id}.json").unlink(missing_ok=True)
        return killed


def _launch(argv: list[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    # Appending: after somebody has cut the file, the server goes on at its new end and not behind a hole.
    with log.open("ab") as sink:
        return subprocess.Popen(
            argv, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env, start_new_session=True
        )


def _claim_port(port: int | None) -> int:
    if port is None:
        return free_port()
    with socket.socket() as probe:
        probe.settimeout(2)
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            pids = processes.listener_pids(port)
            raise ServerError(
                f"port {port} already answers (listening pid: {', '.join(map(str, pids)) or 'unknown'}); stop that process, "
                "or leave --port out and a free one is taken",
                cause="PORT_IN_USE",
            )
    return port


def free_port(highest: int = HIGHEST_PORT) -> int:
    """A port of the loopback address on which nothing listens, at most ``highest``. Raises ServerError."""
    with contextlib.ExitStack() as held:  # refused ones stay bound, so that the next try gives another
        for _ in range(200):
            probe = held.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            if (port := int(probe.getsockname()[1])) <= highest:
                return port
    raise ServerError(f"no free port of at most {highest} was found in 200 tries; give one with --port")


def _need_space(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise ServerError(
            f"{folder}: only {free // 2**20} MiB free, {MIN_FREE_BYTES // 2**20} MiB wanted for the log and results; free "
            "some space or give another --report folder"
        )


def _wait_ready(process: subprocess.Popen[bytes], log: Path, limit: float, progress: Progress) -> None:
    deadline, began, shown = time.monotonic() + limit, time.monotonic(), 0.0
    tail = _Tail(log)
    while True:
        seen = tail.read()
        for failure in PLUGIN_FAILURES:
            if failure in seen:
                raise ServerError(f"a plug-in failed and the server would run unpatched: {_line(seen, failure)}", log)
        if BIND_FAILURE in seen:
            raise ServerError(f"somebody took the port while the server started: {_line(seen, BIND_FAILURE)}", log)
        if READY_LINE in seen:
            return
        if (code := process.poll()) is not None:
            raise ServerError(f"the server ended with exit code {code} before it was ready", log, code)
        now = time.monotonic()
        if now > deadline:
            raise ServerError(
                f"the server was not ready within {limit:.0f} s (limits.start_seconds)", log, DEADLINE_CODE
            )
        if now - shown > 5:
            progress(f"starting the server: {now - began:.0f} s, at most {deadline - now:.0f} s left")
            shown = now
        time.sleep(0.2)


def _identity(recipe: Recipe, server: Server) -> dict[str, Any]:
    assert server.entry is not None
    ours = {p.pid for p in processes.members(server.entry)}
    owners = processes.listener_pids(server.port)
    if not set(owners) & ours:
        raise ServerError(
            f"port {server.port} is owned by pid {owners}, not by the server that was started", server.log
        )
    info = http.server_info(server.base_url)
    if wrong := command.disagreements(recipe, info, server.served_name):
        raise ServerError("the server is not what the recipe describes: " + "; ".join(wrong), server.log)
    return info


def _start_of(log: Path) -> str:
    with log.open("rb") as source:
        return source.read(START_LOG_BYTES).decode(errors="replace")


class _Tail:
    """Reads what a growing file gained, keeping one short overlap so that a line cut in two is still seen whole."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._carry = path, 0, b""

    def read(self) -> bytes:
        with self._path.open("rb") as source:
            source.seek(self._offset)
            fresh = source.read()
            self._offset = source.tell()
        text = self._carry + fresh
        self._carry = text[-400:]
        return text


def _line(text: bytes, part: bytes) -> str:
    return next(line for line in text.splitlines() if part in line).decode(errors="replace")
