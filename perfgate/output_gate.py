"""The output check of a run: the same ids through both servers, after a start's last sample (edge)."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfgate import output_client, output_report, ready, sweep
from perfgate.closing import StartRecord
from perfgate.output_check import Run
from perfgate.output_report import Own
from perfgate.recipe import Output, Recipe
from perfgate.redact import redact_text
from perfgate.result import CheckResult
from perfgate.server import Server, ServerError, http
from perfgate.server.logfile import LogFile

KEPT = "answers.json.gz"
"""Of a report: all steps that were compared."""

SEED = 7
"""Of the prompts: the same ids in every run."""

BEGUN_ANEW = 8
"""Steps after which the old server's answer begins anew in one of its runs, as the new one's does after another token."""

CONTROL_STEPS = 8
"""Steps after other pasts: enough to see whether they matter. Each comes out of a prefill, as the answers part at once."""

Show = Callable[[str], None]


class CheckFailed(RuntimeError):
    """A step of the check that could not be made; ``evidence`` are log lines."""

    def __init__(self, message: str, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.evidence = evidence


class Host(Protocol):
    """What holds one side's server; a host of a run, or a test's."""

    @property
    def server(self) -> Server | None: ...

    @property
    def starts(self) -> list[StartRecord]: ...


@dataclass(frozen=True)
class _Asked:
    """What the old side was asked, from how many ids, and what it answered."""

    prompts: list[list[int]]
    vocabulary: int
    own: Own


class OutputGate:
    """One A/B run's check. Without an ``[output]`` table in the new side's recipe there is none."""

    def __init__(self, new: Recipe, old: Recipe, show: Show, report: Path) -> None:
        self._new, self._old, self._show, self._report = new, old, show, report
        self._asked: _Asked | None = None
        self._found: CheckResult | None = None

    def checks(self) -> list[CheckResult]:
        """The check's row; one that was never reached is MISSING."""
        if self._new.output is None:
            return []
        return [self._found or output_report.not_made("the run ended before it")]

    def compare(self, old: Host, new: Host) -> None:
        """Make the check while both servers live."""
        self.ask(old)
        self.hold(new)

    def ask(self, old: Host) -> None:
        """Have the old side's live server answer, and follow itself. What it does wrong ends in the row, never in an
        exception; later calls do nothing, nor without a table."""
        table = self._new.output
        if table is None or self._asked is not None or self._found is not None:
            return
        with self._step(old):
            server = _live(old, "old")
            self._show(f"the old side's answers, {table.steps} steps a prompt")
            known = vocabulary(server)
            asked = prompts(table, known)
            self._asked = _Asked(
                asked, known, follow_itself(server, asked, table.steps, self._old.limits.sample_seconds)
            )

    def hold(self, new: Host) -> None:
        """Hold the new side's live server to the answers that the old one gave, once; before them it does nothing."""
        table = self._new.output
        if table is None or self._asked is None or self._found is not None:
            return
        with self._step(new):
            server, asked = _live(new, "new"), self._asked
            self._show("holding the new side to the old side's answers")
            if vocabulary(server) < asked.vocabulary:
                raise CheckFailed(
                    f"the new side knows {vocabulary(server)} token ids and the old {asked.vocabulary}: not one model"
                )
            candidate = follow(server, asked.prompts, asked.own.first, self._new.limits.sample_seconds)
            keep(self._report, asked.own, candidate)
            self._found = output_report.row(*names(self._old, self._new), asked.own, candidate, table.floor)

    @contextlib.contextmanager
    def _step(self, host: Host) -> Iterator[None]:
        """A part of the check: its load is ours, and its failure is the row."""
        began = time.time()
        try:
            yield
        except CheckFailed as error:
            self._found = output_report.not_made(redact_text(str(error)), error.evidence)
        finally:
            if host.starts:
                host.starts[-1].windows.append((began, time.time()))


def prompts(table: Output, vocabulary: int) -> list[list[int]]:
    """One prompt of random ids for each length, the same ones for the same table and vocabulary."""
    dice = random.Random(SEED)
    return [sweep.random_ids(dice, length, vocabulary) for length in table.prompt_lengths]


def vocabulary(server: Server) -> int:
    """How many ids the server's model knows. Raises CheckFailed."""
    try:
        return ready.vocabulary(server.model)
    except ServerError as error:
        raise CheckFailed(str(error)) from None


def follow_itself(server: Server, asked: Sequence[Sequence[int]], steps: int, seconds: float) -> Own:
    """The old server's answers, and how it follows them itself. ``seconds`` for each request. Raises CheckFailed."""
    first = _ask(server, lambda: output_client.free_run(server.base_url, asked, steps, timeout=seconds))
    again = follow(server, asked, first, seconds)
    alone = follow(server, asked, first, seconds, together=False)
    restarted = follow(server, asked, first, seconds, every=BEGUN_ANEW)
    begun = [steps[:CONTROL_STEPS] for steps in first]
    return Own(first, again, alone, restarted, follow(server, elsewhere(asked, vocabulary(server)), begun, seconds))


def keep(report: Path, own: Own, candidate: Run) -> None:
    """Every step of every run, for whoever asks what the row stands on. Raises CheckFailed."""
    text = json.dumps(output_report.steps(own, candidate))
    try:
        (report / KEPT).write_bytes(gzip.compress(text.encode(), mtime=0))
    except OSError as error:
        raise CheckFailed(f"{report / KEPT} cannot be written: {error.strerror or error}") from None


def elsewhere(asked: Sequence[Sequence[int]], vocabulary: int) -> list[list[int]]:
    """Prompts that agree with ``asked`` in their last id alone; one of a single id stays as it is."""
    dice = random.Random(SEED + 1)
    return [[*sweep.random_ids(dice, len(ids) - 1, vocabulary), ids[-1]] for ids in asked]


def follow(
    server: Server,
    asked: Sequence[Sequence[int]],
    reference: Run,
    seconds: float,
    together: bool = True,
    every: int | None = None,
) -> Run:
    """A server's steps along the reference's tokens. Raises CheckFailed."""
    run = output_client.forced_run
    return _ask(server, lambda: run(server.base_url, asked, reference, together, timeout=seconds, every=every))


def _ask(server: Server, call: Callable[[], Run]) -> Run:
    try:
        # Each run begins with an empty prefix cache: else the second does not do what the first did.
        http.flush_cache(server.base_url, patience=http.LEFTOVER_SECONDS)
        return call()
    except (output_client.OutputCheckError, http.ServerHttpError) as error:
        lines = LogFile(server.log).tail(65536).splitlines() if server.log is not None else []
        evidence = tuple(redact_text(line) for line in lines if line.strip())[-4:]
        raise CheckFailed(f"{server.served_name}: {error}", evidence) from None


def names(old: Recipe, new: Recipe) -> tuple[str, str]:
    """What the row calls the sides: two commits' kernels have one recipe."""
    return (old.name, new.name) if old.name != new.name else ("the old side", "the new side")


def _live(host: Host, label: str) -> Server:
    if host.server is None or not host.server.alive():
        raise CheckFailed(f"the {label} server is not there any more; both must run at the same time here")
    return host.server
