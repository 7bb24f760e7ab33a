"""What every measuring run is made with and has: servers, clock, yardstick, and what is done when it is cut short (edge)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfgate import (
    ab,
    baseline,
    campaign,
    context_sweep,
    fingerprint,
    local_history,
    paths,
    profiles,
)
from perfgate.environments import Environments
from perfgate.gpu_guard import GpuGuard
from perfgate.host import LocalHost, start_log
from perfgate.options import Options
from perfgate.redact import redact_text
from perfgate.result import CheckResult, Outcome
from perfgate.sampler import Show
from perfgate.server import ServerError
from perfgate.server.command import environment
from perfgate.server.shared import SharedServer
from perfgate.workload.client import Client, ClientError
from perfgate.yardstick import Yardstick


def load_baseline(options: Options, machine: dict[str, object]) -> baseline.BaselineFile | None:
    """The baseline file of this recipe and hardware, or None where there is none. Raises BaselineError for a bad one."""
    try:
        return baseline.load(baseline_path(options, machine))
    except baseline.BaselineMissing:
        return None


def baseline_path(options: Options, machine: dict[str, object]) -> Path:
    return options.baselines / options.recipe.name / f"{fingerprint.hardware_name(machine)}.json"


@dataclass(frozen=True)
class Means:
    """What a run is made with. ``folder`` keeps its servers for all workers; ``sides``: built environments of an A/B's."""

    options: Options
    folder: Path
    client: Client
    show: Show
    gpus: GpuGuard
    sides: Environments | None = None

    def host(self, options: Options, folder: Path, built: Callable[[], Path] | None) -> tuple[SharedServer, LocalHost]:
        """A place for one side's server, which nothing is started in yet."""
        shared = SharedServer(folder, paths.ledger_dir(), options.recipe.limits.stop_seconds)
        return shared, LocalHost(options, options.recipe, shared, self.client, self.show, self.gpus, built)


class Run:
    """What a single run and an A/B run share: the clock, the yardstick, and what is done about an interruption."""

    def __init__(self, means: Means) -> None:
        options, sides = means.options, means.sides
        self.options, self.client, self.show, self.gpus = options, means.client, means.show, means.gpus
        self.started_at, self.began = time.time(), time.monotonic()
        self.order = campaign.Order(
            options.concurrencies, options.samples, options.max_samples, options.seed, options.own_starts
        )
        self.interrupted: BaseException | None = None
        self.stopped: str | None = None
        """What else ended the measuring early."""
        self.shared, self.host = means.host(options, means.folder, None if sides is None else sides.new)
        self._yardstick: Yardstick | None = None
        self.history_notes: list[str] = []
        self.profiles = profiles.Profiles()
        self.context = context_sweep.ContextSweep(options.recipe, options.seed, means.show)

    def yardstick(self) -> Yardstick:
        """Made once the server is up, since its resolved arguments are part of the fingerprint."""
        if self._yardstick is None or not self._yardstick.fingerprint.get("server"):
            server = self.host.server
            machine = fingerprint.collect(
                server.info if server is not None else {},
                self.gpus.describe(),
                environ=environment(self.options.recipe, os.environ, "")
                if server is not None and server.owned
                else None,
                start_log=start_log(server) if server is not None else "",
                recipe=self.options.recipe,
            )
            past, self.history_notes = local_history.read(
                self.history_path(machine), local_history.state(self.options.recipe, machine)
            )
            self._yardstick = Yardstick(
                recipe=self.options.recipe,
                file=load_baseline(self.options, machine),
                fingerprint=machine,
                recording=self.options.record,
                samples=self.order.all.samples,
                max_samples=self.order.all.max_samples,
                points=len(self.options.concurrencies),
                past=past,
            )
        return self._yardstick

    def history_path(self, machine: Mapping[str, object]) -> Path:
        return local_history.history_path(self.options.recipe.name, fingerprint.hardware_name(machine))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def commit(self) -> str | None:
        return fingerprint.git_commit(Path(__file__).parent)

    def guarded(self, data: campaign.CampaignData | ab.AbData, measure: Callable[[], None]) -> None:
        """Measure; whatever ends it early, before its first step too, leaves every open point with a reason."""
        try:
            # The client's imports take half a minute on a GPU host, whose cores can start the server meanwhile: there the
            # first sample waits for them. On few cores the server would only start the later, and be timed so.
            if not self.gpus.needed:
                self.client.wait_ready()
            measure()
        except KeyboardInterrupt as stop:
            self.interrupted = stop
            why = "the run was interrupted before this point was done"
            data.close("UNKNOWN", why, "run it again", self.order.all.samples)
        except (ClientError, ServerError) as error:
            self.stopped = str(error)
            data.close("CLIENT_FAILED", str(error), "mend what the message names and run again", self.order.all.samples)

    def prove_replay(self, *hosts: LocalHost) -> None:
        """After the last sample, since a profiler leaves its traces in what is timed after it. An interruption is kept like
        one of the measuring: what was measured before is still to be written."""
        if self.interrupted is not None:
            return
        try:
            for host in hosts:
                host.prove_replay()
        except KeyboardInterrupt as stop:
            self.interrupted = stop

    def whole(self) -> list[CheckResult]:
        """A row where the run did not come to its end: that may be after the last sample, and then no point shows it."""
        why = "interrupted before its end" if self.interrupted is not None else self.stopped
        if why is None:
            return []
        return [CheckResult(name="the whole run", outcome=Outcome.MISSING, why=redact_text(why), advice="run it again")]

    def release(self, shared: SharedServer) -> None:
        if self.options.server_url is None:
            shared.release()
