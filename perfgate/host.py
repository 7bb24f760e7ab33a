"""What a campaign runs on: this run's server (shared by its workers), its client, and its folder (edge)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from perfgate import busy, capacity, checks, environments, models, paths, ready, replay
from perfgate.checks import ServerFacts
from perfgate.closing import StartRecord
from perfgate.gpu import GpuError
from perfgate.gpu_guard import GpuGuard
from perfgate.options import Options
from perfgate.proof import PatchProof
from perfgate.recipe import Recipe
from perfgate.sampler import Sampler, Show
from perfgate.server import Server, ServerError, attach, command, start, stop
from perfgate.server.command import environment
from perfgate.server.lifecycle import START_LOG_BYTES
from perfgate.server.logfile import LogFile
from perfgate.server.shared import SharedServer
from perfgate.workload.client import Client


class LocalHost:
    """Starts the recipe's server on demand and keeps one preloaded client for the whole run."""

    def __init__(
        self,
        options: Options,
        recipe: Recipe,
        shared: SharedServer,
        client: Client,
        show: Show,
        gpus: GpuGuard,
        built: Callable[[], Path] | None = None,
    ) -> None:
        self._options, self._recipe, self._shared, self._client, self._show = options, recipe, shared, client, show
        self._gpus, self._lost = gpus, False
        self._built = built
        """Gives the folder of the kernels that this server is to load, where those are not the installed ones."""
        self.server: Server | None = None
        self.live: Sampler | None = None
        self.starts: list[StartRecord] = []
        self.notes: list[str] = []
        self._facts: list[ServerFacts] = []
        gpus.servers.append(lambda: set() if self.server is None else self.server.pids())

    def sampler(self, start_number: int) -> Sampler:
        """A sampler on a live server: the one that runs, or a new one where there is none. Raises ServerError."""
        record = StartRecord(start_number, None)
        if self._options.server_url is not None:
            self.server = attach(self._options.server_url, self._recipe, self._options.tokenizer)
        elif self._lost:
            self.server = self._shared.replace(self._start(start_number, record))
        else:
            self.server = self._shared.acquire(self._start(start_number, record))
        self._lost = False
        record.log = self.server.log
        record.proof = self._proof(self.server)
        self.starts.append(record)
        self._facts.append(server_facts(self.server, self._recipe))
        folder = self._options.report / "samples"
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = self._options.tokenizer or self.server.model or model_folder(self._recipe)
        watch = self._gpus.watch if self.server.owned else lambda: None
        self.live = Sampler(
            self._recipe,
            self.server,
            self._client,
            tokenizer,
            folder,
            start_number,
            watch,
            record.proof,
            record.windows,
        )
        return self.live

    def lost(self) -> None:
        """The server is of no more use: end what is left of it."""
        self._lost, self.live = True, None
        if self._options.server_url is None:
            self._shared.drop()

    def renew(self) -> None:
        """End a server that has been measured, so that the next one is another start."""
        self.prove_replay()
        self.lost()

    def prove_replay(self) -> None:
        """Trace a few replayed steps of a live server with patches and graphs, when everything on it is measured. One that
        is there no more, and was not lost in a sample, which would have told it, is put on record."""
        if self._lost or self.server is None or not self.starts or not self.server.owned:
            return
        record = self.starts[-1]
        asked = record.proof if record.proof is not None and record.proof.required and record.proof.sizes else None
        if not self.server.alive():
            record.ended = "the server ended by itself after its last sample"
            if (code := self.server.exit_code()) is not None:
                record.ended += f" (exit code {code})"
            if asked is not None:
                record.replayed = [asked.unproved(f"{record.ended}, before a trace showed what graph replay runs")]
            return
        if asked is None:
            return
        self._show("proving by a trace that graph replay runs the patches")
        began = time.time()
        folder = self._options.report / "traces" / f"start{record.number}"
        # Stands until there is a better answer: an interruption must not leave a proof that was never made.
        record.replayed = [asked.unproved("interrupted before a trace showed what graph replay runs")]
        record.replayed = replay.prove(self.server, asked, folder)
        if (step := busy.of(next(iter(replay.stored(folder).values()), None))) is not None:
            self.notes.append(step.note)
        record.windows.append((began, time.time()))

    def facts(self) -> ServerFacts | None:
        """Those that hold of every start."""
        return checks.weakest(self._facts)

    def _start(self, number: int, record: StartRecord) -> Callable[[], Server]:
        def begin() -> Server:
            log = self._options.report / f"server-start{number}.log"
            try:
                self._gpus.before_start()
            except GpuError as error:
                raise ServerError(str(error)) from None
            counts = ready.clean_counts(log)
            model = model_folder(self._recipe)
            env = {"DSV4_COUNTS_FILE": str(counts), **self._own_kernels()}
            server = start(self._recipe, model, log, paths.ledger_dir(), self._options.port, self._show, env)
            try:
                self.notes += ready.make_ready(self._recipe, server, self._proof(server), record.windows, self._show)
            except BaseException:  # Ctrl-C too must leave no process behind
                stop(server, paths.ledger_dir(), self._recipe.limits.stop_seconds)
                raise
            return server

        return begin

    def _own_kernels(self) -> dict[str, str]:
        if self._built is None:
            return {}
        folder = self._built()
        env = command.environment(self._recipe, os.environ, "")
        env |= environments.on_path(folder, env)
        environments.prove(folder, env)
        return {"PYTHONPATH": env["PYTHONPATH"]}

    def _proof(self, server: Server) -> PatchProof | None:
        if server.log is None:
            return None
        counts = ready.counts_path(server.log)
        return PatchProof.of(self._recipe, counts, server.model, server.info, start_log(server))


def model_folder(recipe: Recipe) -> Path:
    """The recipe's model on this machine, generated if need be. Raises ServerError."""
    if recipe.model.path is not None:
        if not (recipe.model.path / "config.json").is_file():
            raise ServerError(
                f"model.path {recipe.model.path} has no config.json; download the model there, or correct the path"
            )
        return recipe.model.path
    assert recipe.model.generator is not None
    try:
        return models.ensure(recipe.model.generator, recipe.model.options, paths.models_dir())
    except models.ModelError as error:
        raise ServerError(str(error)) from None


def server_facts(server: Server, recipe: Recipe) -> ServerFacts:
    """What a ready server and the log of its start say of capacity and graphs."""
    capacity_facts = capacity.read(server.info, start_log(server), recipe)
    return ServerFacts(
        start_seconds=server.start_seconds,
        owned=server.owned,
        environ=environment(recipe, os.environ, "") if server.owned else None,
        capacity=capacity_facts,
    )


def start_log(server: Server) -> str:
    """The first part of a server's log, where it states its sizes; empty for a server without one."""
    if server.start_log or server.log is None:
        return server.start_log
    return LogFile(server.log).head(START_LOG_BYTES)
