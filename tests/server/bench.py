"""One real CPU server with the gate's own campaign on it, and a place to put a fault into a chosen sample."""

from __future__ import annotations

import dataclasses
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from perfgate import campaign, closing, fingerprint, gate, host, paths
from perfgate import recipe as recipes
from perfgate.closing import StartRecord
from perfgate.recipe import Recipe
from perfgate.result import Outcome, PointResult, RunResult
from perfgate.sampler import Sampler
from perfgate.server import Server, ServerError, processes, start, stop
from perfgate.workload.client import Client
from perfgate.yardstick import Yardstick
from server.kit import quick_recipe

SAMPLE_SECONDS = 60
"""A sample here takes 2 to 10 s, on a machine with four times as much to do as it has cores too."""

_ANSWERED = re.compile(r"\| [1-9]\d*/\d+ \[")
"""The client's progress bar, once a request of the measured phase has been answered."""

Fault = Callable[[], None]


@dataclasses.dataclass
class Bench:
    """A real server that answers, the client, and the folder of all that they leave."""

    recipe: Recipe
    server: Server
    client: Client
    folder: Path
    judged: int = 0
    gone: bool = False
    """Set once the gate has given the server up."""
    windows: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    """When the load on this server was ours, in this run."""

    def process(self, name: str) -> psutil.Process:
        """A process of the server: ``scheduler``, ``detokenizer`` or ``http``."""
        wanted = "sglang.launch_server" if name == "http" else f"sglang::{name}"
        assert self.server.entry is not None
        return next(p for p in processes.members(self.server.entry) if wanted in " ".join(p.cmdline()))

    def judge(
        self,
        concurrency: int,
        fault: Fault | None = None,
        sample: int = 1,
        samples: int = 2,
        recipe: Recipe | None = None,
    ) -> Judged:
        """Measure and judge one point; ``fault`` runs beside its ``sample``-th client run (0: the warm-up), when that has
        had its first answer.

        This is the gate's own campaign, closing and judging; only pytest, the locks and the report are left out.
        """
        self.judged += 1
        folder = self.folder / f"run{self.judged}"
        folder.mkdir()
        self._fresh_log()
        asked = recipe or self.recipe
        order = campaign.Order((concurrency,), samples, samples, seed=self.judged)
        data = campaign.new(asked, order)
        lent = _Lent(self, asked, folder)
        yardstick = Yardstick(asked, None, fingerprint.collect(self.server.info), False, samples, samples, 1)
        beside = _Beside(fault, folder, sample)
        began = time.monotonic()
        with beside:
            campaign.run(asked, lent, order, yardstick.enough, lambda line: None, data)
        seconds = time.monotonic() - began
        closing.close(asked, data, lent.starts)
        facts = host.server_facts(self.server, asked)
        result = gate.result(data, yardstick, facts, started_at=time.time(), seconds=seconds)
        return Judged(result, seconds, beside.struck)

    def _fresh_log(self) -> None:
        """The log of a server that has just started: what other tests did to this one is none of this run's business."""
        assert self.server.log is not None
        self.server.log.write_text(self.server.start_log)  # the server appends
        self.windows.clear()

    def stop(self) -> None:
        self.gone = True
        stop(self.server, paths.ledger_dir(), self.recipe.limits.stop_seconds)


@dataclasses.dataclass(frozen=True)
class Judged:
    """What the gate came to, in how many seconds; ``struck`` says that the fault took place."""

    result: RunResult
    seconds: float
    struck: bool

    @property
    def point(self) -> PointResult:
        (point,) = self.result.points
        return point

    @property
    def outcome(self) -> Outcome:
        return self.point.outcome

    def thrown_away(self) -> list[str]:
        """Why attempts did not count, one text each."""
        return ["; ".join(s.problems) for s in self.point.samples if not s.counted]


class _Lent:
    """The campaign's host: the bench's one server, and no second one."""

    def __init__(self, bench: Bench, recipe: Recipe, folder: Path) -> None:
        self._bench, self._recipe, self._folder = bench, recipe, folder
        self.starts: list[StartRecord] = []

    def sampler(self, start_number: int) -> Sampler:
        bench = self._bench
        if bench.gone:
            raise ServerError("the one server of this test is gone")
        assert bench.server.model is not None
        record = StartRecord(start_number, bench.server.log, windows=bench.windows)
        self.starts.append(record)
        return Sampler(
            self._recipe,
            bench.server,
            bench.client,
            bench.server.model,
            self._folder,
            start_number,
            windows=record.windows,
        )

    def lost(self) -> None:
        self._bench.stop()


class _Beside:
    """Runs a fault in the middle of the measured phase of the chosen client run. An error in it is raised at the end."""

    def __init__(self, fault: Fault | None, folder: Path, sample: int) -> None:
        self._fault, self._folder, self._sample = fault, folder, sample
        self._over = threading.Event()
        self._error: BaseException | None = None
        self.struck = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        if self._fault is not None:
            self._thread.start()

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        if self._fault is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        assert self._fault is not None
        while not self._over.is_set():
            outputs = sorted(self._folder.glob("*.client.txt"))
            if len(outputs) > self._sample and _ANSWERED.search(outputs[self._sample].read_text(errors="replace")):
                try:
                    self._fault()
                    self.struck = True
                except BaseException as error:
                    self._error = error
                return
            self._over.wait(0.02)


@contextmanager
def bench(folder: Path, environment: Mapping[str, str] | None = None, **changes: str) -> Iterator[Bench]:
    """A started server on cpu-tiny with short samples and deadlines; whatever it started is gone at the end."""
    short = {
        "sample_seconds = 120": f"sample_seconds = {SAMPLE_SECONDS}\nhang_seconds = 5",
        "start_seconds = 600": "start_seconds = 900",
        "max_startup_seconds = 400": "max_startup_seconds = 900",
    }
    chosen = recipes.load(quick_recipe(folder, **short, **changes))
    chosen.server.env.update(environment or {})
    log = folder / "server-start1.log"
    with Client(folder / "client-preload.log", chosen.server.env) as client:
        server = start(chosen, host.model_folder(chosen), log, paths.ledger_dir())
        one = Bench(chosen, server, client, folder)
        try:
            client.wait_ready()
            yield one
        finally:
            one.stop()
    assert server.entry is not None
    assert processes.members(server.entry) == []
    assert not (paths.ledger_dir() / f"{server.entry.server_id}.json").exists()


def hard_kill(process: psutil.Process) -> None:
    process.send_signal(signal.SIGKILL)
