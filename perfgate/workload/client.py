"""Runs SGLang's serving benchmark client, one child a sample, under a deadline (edge)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate import interruptions
from perfgate.workload.plan import Plan

Tick = Callable[[float], None]


class ClientError(RuntimeError):
    """The client could not be run at all; the message says why."""


@dataclass(frozen=True)
class ClientRun:
    """What one client run left: its exit code, its printed output, and exactly the result lines that it added."""

    exit_code: int
    output: str
    lines: tuple[str, ...]
    started_at: float
    ended_at: float
    cpu_seconds: float
    timed_out: bool

    @property
    def seconds(self) -> float:
        return self.ended_at - self.started_at


def argv(plan: Plan, base_url: str, tokenizer: Path, served_name: str, seed: int, result: Path) -> list[str]:
    """The client's arguments for one sample.

    ``--random-range-ratio 1`` makes lengths exact (the default draws them from 1 to the length), ``--tokenize-prompt``
    sends ids instead of text, which re-tokenises to other lengths, and ``--flush-cache`` drops what the client's own
    warm-up request left in the prefix cache.
    """
    return [
        "--backend=sglang",
        f"--base-url={base_url}",
        f"--model={served_name}",
        f"--tokenizer={tokenizer}",
        "--dataset-name=random-ids",
        f"--random-input-len={plan.input_len}",
        f"--random-output-len={plan.output_len}",
        "--random-range-ratio=1.0",
        "--tokenize-prompt",
        f"--num-prompts={plan.num_prompts}",
        f"--max-concurrency={plan.concurrency}",
        f"--warmup-requests={plan.warmup_requests}",
        "--flush-cache",
        "--output-details",
        f"--seed={seed}",
        f"--output-file={result}",
    ]


IMPORT_SECONDS = 600.0
"""Imports take 7 s on an idle machine, and took over 120 s beside six servers on 2 cores: this tells only a hang."""


class Client:
    """A preloaded client process. Use as a context manager, or call ``close``."""

    def __init__(self, log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start loading in the background; ``log`` takes what the imports print."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._buffer = b""
        self._ready = False
        self._child: int | None = None
        started: list[subprocess.Popen[bytes]] = []
        try:
            with interruptions.held_back():
                started.append(self._start(env or {}))
        except BaseException:  # nobody has this object yet, to close it
            for process in started:
                process.kill()
                process.wait(timeout=10)
            raise
        (self._process,) = started

    def _start(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as sink:
            return subprocess.Popen(
                [sys.executable, "-m", "perfgate.workload.preload"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **env, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"},
                start_new_session=True,
            )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def wait_ready(self, seconds: float = IMPORT_SECONDS) -> None:
        """Block until the client is imported. Raises ClientError."""
        if self._ready:
            return
        answer = self._answer(seconds)
        if answer is None:
            raise ClientError(f"the benchmark client was not imported within {seconds:.0f} s; see {self._log}")
        if "error" in answer:
            raise ClientError(f"{answer['error']}; install SGLang as requirements/README.md says")
        self._ready = True

    def run(
        self, arguments: list[str], result: Path, output: Path, deadline: float, tick: Tick | None = None
    ) -> ClientRun:
        """One client run; ``deadline`` in seconds from now, after which the child is killed and ``timed_out`` set.

        Raises ClientError when the preloaded parent itself is gone.
        """
        self.wait_ready()
        before = _lines(result)
        order = json.dumps({"argv": arguments, "output": str(output)}) + "\n"
        started_at, began = time.time(), time.monotonic()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order.encode())
            self._process.stdin.flush()
        except OSError as error:
            raise ClientError(f"the preloaded client process is gone ({error}); see {self._log}") from None
        answer = self._answer(10)
        if answer is None or "pid" not in answer:
            raise ClientError(f"the preloaded client process did not start a child; see {self._log}")
        self._child = int(answer["pid"])
        timed_out = False
        try:
            while (done := self._answer(0.5)) is None:
                elapsed = time.monotonic() - began
                if tick is not None:
                    tick(elapsed)
                if elapsed > deadline:
                    timed_out = True
                    self.kill_child()
                    deadline = float("inf")
        except BaseException:
            # Ctrl-C: a server asked to end answers what is in flight first, and this run would go on asking it.
            self.kill_child()
            self._child = None  # its number is free from now on, and not to be killed again
            raise
        self._child = None
        return ClientRun(
            exit_code=int(done["exit"]),
            output=_read(output),
            lines=_lines(result)[len(before) :],
            started_at=started_at,
            ended_at=time.time(),
            cpu_seconds=float(done["cpu_seconds"]),
            timed_out=timed_out,
        )

    def pids(self) -> set[int]:
        """The preloaded process, and the client run in progress."""
        return {self._process.pid} | ({self._child} if self._child is not None else set())

    def kill_child(self) -> None:
        """End the client run in progress, if there is one."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)

    def close(self) -> None:
        """End the preloaded process and any child of it."""
        self.kill_child()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(timeout=10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return None
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk:
                code = self._process.wait(timeout=10)
                raise ClientError(f"the preloaded client process ended with code {code}; see {self._log}")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        value = json.loads(line)
        assert isinstance(value, dict)
        return value


def _lines(path: Path) -> tuple[str, ...]:
    return tuple(line for line in _read(path).splitlines() if line.strip())


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
