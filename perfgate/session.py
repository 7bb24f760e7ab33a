"""One gate run from options to written result (edge): locks, leftovers, campaign, judging, files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from perfgate import (
    ab,
    baseline,
    campaign,
    closing,
    context_sweep,
    fingerprint,
    gate,
    local_history,
    output_gate,
    past_runs,
    paths,
    profiles,
    profiling,
    report,
)
from perfgate.environments import Environments
from perfgate.gpu_guard import GpuGuard
from perfgate.host import LocalHost, start_log
from perfgate.options import Options
from perfgate.result import Outcome, RunResult
from perfgate.revision import RevisionError
from perfgate.sampler import Show
from perfgate.server import ServerError
from perfgate.server.command import environment
from perfgate.server.processes import end_leftovers
from perfgate.server.shared import SharedServer
from perfgate.verdict import Verdict, judge_ab, step_change
from perfgate.workload import Sample
from perfgate.workload.client import Client, ClientError

LOCK_SECONDS = 1800.0
RESULT_FILES = ("result.json", "summary.md", "report.html")


def prepare(options: Options) -> None:
    """Empty the report folder of an earlier run's results: a run that dies early must leave none that look like its own."""
    options.report.mkdir(parents=True, exist_ok=True)
    for name in RESULT_FILES:
        (options.report / name).unlink(missing_ok=True)


def run(options: Options, shared_folder: Path, show: Show) -> RunResult:
    """Measure, judge and write. Ctrl-C ends the measuring, writes what there is and is raised again.

    Raises BaselineError for a baseline file that cannot be used, and ServerError where another run holds the host.
    """
    gpus = GpuGuard(options.recipe, options.against)
    if options.server_url is not None:
        gpus.only_describe()
    # A broken baseline file is told before a minute is spent.
    load_baseline(options, fingerprint.collect({}, gpus.describe()))
    with (
        measuring(show),
        gpus,
        Client(options.report / "client-preload.log", options.recipe.server.env) as client,
    ):
        gpus.helpers.append(client.pids)
        for line in end_leftovers(paths.ledger_dir()):
            show(line)
        one: _Compare | _Single
        with contextlib.ExitStack() as built:
            if options.against:
                commit = options.against_commit
                sides = None if commit is None else built.enter_context(Environments(commit, show))
                one = _Compare(options, shared_folder, client, show, gpus, sides)
            else:
                one = _Single(options, shared_folder, client, show, gpus)
            done = one.run()
    save(done, options.report)
    if one.interrupted is not None:
        raise one.interrupted
    if options.record and isinstance(one, _Single):
        done = _recorded(done, one, options)
    return done


def save(done: RunResult, folder: Path) -> None:
    """Write the report's files. Raises ServerError naming the folder where that cannot be: a run whose result nobody can
    read has none."""
    try:
        report.save(done, folder)
    except OSError as error:
        raise ServerError(
            f"{folder}: the results cannot be written ({error.strerror or error}); the verdict was {done.outcome}: "
            f"{done.why}. Free some space or give another --report folder, then run again"
        ) from error


def _recorded(done: RunResult, one: _Single, options: Options) -> RunResult:
    """Record only once the results are on disk, so that a baseline that cannot be written costs no measurement.

    Raises BaselineError; the results then say that nothing was recorded.
    """
    try:
        done = _record(done, one.data, one.yardstick(), options, one.profiles)
    except baseline.BaselineError as error:
        told = done.model_copy(update={"notes": [*done.notes, f"nothing was recorded: {error}"]})
        with contextlib.suppress(ServerError):  # what was saved before stands, and this error is the one to tell
            save(told, options.report)
        raise
    save(done, options.report)
    return done


def load_baseline(options: Options, machine: dict[str, object]) -> baseline.BaselineFile | None:
    """The baseline file of this recipe and hardware, or None where there is none. Raises BaselineError for a bad one."""
    try:
        return baseline.load(baseline_path(options, machine))
    except baseline.BaselineMissing:
        return None


def baseline_path(options: Options, machine: dict[str, object]) -> Path:
    return options.baselines / options.recipe.name / f"{fingerprint.hardware_name(machine)}.json"


@contextmanager
def measuring(show: Show) -> Iterator[None]:
    """Hold this host's measuring lock: two runs at once would measure each other. Raises ServerError after LOCK_SECONDS."""
    paths.cache_dir().mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(paths.measure_lock()))
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            lock.acquire(timeout=5)
            break
        except Timeout:
            left = deadline - time.monotonic()
            if left <= 0:
                why = f"another run has been measuring on this host for {LOCK_SECONDS:.0f} s; see {lock.lock_file}"
                raise ServerError(why) from None
            show(f"another run is measuring on this host; waiting, at most {left:.0f} s")
    try:
        yield
    finally:
        lock.release()


class _Run:
    """What a single run and an A/B run share: the clock, the yardstick, and what is done about an interruption."""

    def __init__(
        self,
        options: Options,
        shared_folder: Path,
        client: Client,
        show: Show,
        gpus: GpuGuard,
        sides: Environments | None = None,
    ) -> None:
        self.options, self.client, self.show = options, client, show
        self.started_at, self.began = time.time(), time.monotonic()
        self.order = campaign.Order(options.concurrencies, options.samples, options.max_samples, options.seed)
        self.interrupted: BaseException | None = None
        self.shared = SharedServer(shared_folder, paths.ledger_dir(), options.recipe.limits.stop_seconds)
        self.gpus = gpus
        self.host = LocalHost(
            options, options.recipe, self.shared, client, show, gpus, None if sides is None else sides.new
        )
        self._yardstick: gate.Yardstick | None = None
        self.history_notes: list[str] = []
        self.profiles = profiles.Profiles()
        self.context = context_sweep.ContextSweep(options.recipe, options.seed, show)

    def yardstick(self) -> gate.Yardstick:
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
            )
            past, self.history_notes = local_history.read(
                self.history_path(machine), local_history.state(self.options.recipe, machine)
            )
            self._yardstick = gate.Yardstick(
                recipe=self.options.recipe,
                file=load_baseline(self.options, machine),
                fingerprint=machine,
                recording=self.options.record,
                samples=self.options.samples,
                max_samples=self.options.max_samples,
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
            self.client.wait_ready()
            measure()
        except KeyboardInterrupt as stop:
            self.interrupted = stop
            why = "the run was interrupted before this point was done"
            data.close("UNKNOWN", why, "run it again", self.order.samples)
        except (ClientError, ServerError) as error:
            data.close("CLIENT_FAILED", str(error), "mend what the message names and run again", self.order.samples)

    def prove_replay(self, *hosts: LocalHost) -> None:
        """After the last sample, since a profiler leaves its traces in what is timed after it."""
        if self.interrupted is None:
            for host in hosts:
                host.prove_replay()

    def release(self, shared: SharedServer) -> None:
        if self.options.server_url is None:
            shared.release()


class _Single(_Run):
    """One server against its baseline."""

    def __init__(self, options: Options, shared_folder: Path, client: Client, show: Show, gpus: GpuGuard) -> None:
        super().__init__(options, shared_folder, client, show, gpus)
        self.data = campaign.new(options.recipe, self.order)

    def run(self) -> RunResult:
        options, data = self.options, self.data
        try:
            self.guarded(data, self._measure)
            self.prove_replay(self.host)
        finally:
            facts = self.host.facts()
            self.release(self.shared)
        closing.close(options.recipe, data, self.host.starts)
        data.notes += self.host.notes
        yardstick = self.yardstick()
        done = gate.result(
            data,
            yardstick,
            facts,
            started_at=self.started_at,
            seconds=self.seconds,
            left_out=options.left_out,
            notes=[*_how_judged(yardstick, options), *self.profiles.notes()],
            command=options.command,
            commit=self.commit,
            extra={**self.profiles.as_extra(), **self.context.as_extra()},
            checked=self.context.checks(),
        )
        return done if options.record or self.interrupted is not None else self._remember(done, yardstick)

    def _measure(self) -> None:
        campaign.run(self.options.recipe, self.host, self.order, self._enough, self.show, self.data)
        self.context.measure(self.host.live)
        self.data.client_seconds += self.context.seconds
        if self.options.profile:
            self._look()

    def _enough(self, concurrency: int, samples: Sequence[Sample]) -> bool:
        return self.yardstick().enough(concurrency, samples, self.data.samples())

    def _look(self) -> None:
        """Profile the points that regressed, or all that are recorded, while their server is up."""
        rule, samples = self.yardstick(), self.data.samples()
        points = [
            c
            for c, taken in samples.items()
            if self.options.record or (taken and rule.judge(c, taken, others=samples).outcome is Outcome.REGRESSION)
        ]
        plans = {c: point.plan for c, point in self.data.points.items()}
        shares = {} if self.options.record else profiles.recorded(rule.file)
        folder = self.options.report / "profile"
        self.profiles = profiling.look(self.host.live, shares, plans, points, folder, self.show)
        self.profiles.recording = self.options.record

    def _remember(self, done: RunResult, yardstick: gate.Yardstick) -> RunResult:
        """Add the run to this machine's own history. A server that ran before is somebody else's, and left out."""
        notes = list(self.history_notes)
        if self.options.server_url is None:
            entries = past_runs.entries(done.points, gate.today(done.started_at), done.commit)
            path = self.history_path(yardstick.fingerprint)
            state = local_history.state(self.options.recipe, yardstick.fingerprint)
            notes += local_history.append(path, state, entries)
        return done.model_copy(update={"notes": [*done.notes, *notes]})


class _Compare(_Run):
    """Two servers side by side, one recipe or one commit's kernels apart. ``--against`` is the old side."""

    def __init__(
        self,
        options: Options,
        shared_folder: Path,
        client: Client,
        show: Show,
        gpus: GpuGuard,
        sides: Environments | None = None,
    ) -> None:
        super().__init__(options, shared_folder, client, show, gpus, sides)
        assert options.against is not None
        self.against = options.against
        self._sides = [f"judged against recipe {self.against.name}, measured side by side in pairs"]
        if options.against_commit is not None:
            try:
                self._sides = options.against_commit.notes(options.recipe_file)
            except RevisionError as error:
                raise ServerError(str(error)) from None
        folder = shared_folder.with_name(shared_folder.name + "-against")
        self._old_shared = SharedServer(folder, paths.ledger_dir(), self.against.limits.stop_seconds)
        old_options = dataclasses.replace(options, recipe=self.against, port=None, report=options.report / "against")
        self._old_host = LocalHost(
            old_options, self.against, self._old_shared, client, show, gpus, None if sides is None else sides.old
        )
        self._answers = output_gate.OutputGate(options.recipe, self.against, show)

    def run(self) -> RunResult:
        options = self.options
        data = ab.AbData(old=campaign.new(self.against, self.order), new=campaign.new(options.recipe, self.order))
        old = ab.Arm("old", self.against, self._old_host, data.old)
        new = ab.Arm("new", options.recipe, self.host, data.new)

        def measure() -> None:
            ab.run(old, new, self.order, self._enough, self.show, data)
            self.context.measure(self.host.live)
            data.new.client_seconds += self.context.seconds
            self._answers.compare(self._old_host, self.host)
            if options.profile:
                self._look(data, old, new)

        try:
            self.guarded(data, measure)
            self.prove_replay(self._old_host, self.host)
        finally:
            facts = self.host.facts()
            self.release(self._old_shared)
            self.release(self.shared)
        closing.close(options.recipe, data.new, self.host.starts)
        closing.close(self.against, data.old, self._old_host.starts)
        closing.close_pairs(data.new, data.pairs)
        for concurrency, point in data.old.points.items():
            if point.condemned:  # a pair needs both of its sides
                data.new.condemn(point.condemned, [concurrency])
        data.new.notes += [*self.host.notes, *data.old.notes, *self._old_host.notes]
        points, verdicts = [], {}
        for concurrency, point in data.new.points.items():
            rows = gate.sample_rows(point.attempts)
            spoilt = gate.unmeasured(point, rows)
            verdict = self._judge(concurrency, data.pairs.get(concurrency, []))
            if spoilt is None:
                verdicts[concurrency] = verdict
            points.append(spoilt or gate.judged(verdict, concurrency, rows))
        told = step_change(verdicts)
        data.new.server_seconds += data.old.server_seconds
        data.new.client_seconds += data.old.client_seconds
        return gate.assemble(
            points,
            data.new,
            self.yardstick(),
            facts,
            started_at=self.started_at,
            seconds=self.seconds,
            left_out=options.left_out,
            notes=[
                *self._sides,
                *([] if told is None else [f"step time over all points: {told}"]),
                *self.profiles.notes(),
            ],
            command=options.command,
            commit=self.commit,
            extra={"against": self._against(), **self.profiles.as_extra(), **self.context.as_extra()},
            judged_by="ab",
            checked=[*self._answers.checks(), *self.context.checks()],
        )

    def _against(self) -> dict[str, str]:
        commit = self.options.against_commit
        return {"recipe": self.against.name} | ({} if commit is None else {"commit": commit.sha})

    def _look(self, data: ab.AbData, old: ab.Arm, new: ab.Arm) -> None:
        """Profile the points that regressed, on both sides."""
        if old.sampler is None or new.sampler is None:
            return
        points = [c for c, pairs in data.pairs.items() if self._judge(c, pairs).outcome is Outcome.REGRESSION]
        plans = {c: point.plan for c, point in data.new.points.items()}
        folder = self.options.report / "profile"
        self.profiles = profiling.look(new.sampler, old.sampler, plans, points, folder, self.show)

    def _judge(self, concurrency: int, pairs: Sequence[ab.Pair]) -> Verdict:
        return judge_ab(
            pairs,
            bounds=self.yardstick().bounds(concurrency),
            min_samples=self.order.samples,
            max_samples=self.order.max_samples,
            comparisons=2 * len(self.order.concurrencies),
        )

    def _enough(self, concurrency: int, pairs: Sequence[ab.Pair]) -> bool:
        return self._judge(concurrency, pairs).outcome is not Outcome.INCONCLUSIVE


def _how_judged(yardstick: gate.Yardstick, options: Options) -> list[str]:
    notes = [] if options.server_url is None else [f"measured a server that already ran: {options.server_url}"]
    if yardstick.judged_by == "smoke":
        again = f"pytest -m perf --recipe {options.recipe.name} --record --reason 'first baseline of this machine'"
        notes.append(
            "only the recipe's smoke floor judged this run, since there is no baseline of this machine; it catches a "
            f"disaster, not a regression. Record this machine with: {again}"
        )
    return notes


def _record(
    done: RunResult,
    data: campaign.CampaignData,
    yardstick: gate.Yardstick,
    options: Options,
    looked: profiles.Profiles,
) -> RunResult:
    dirty = {p.concurrency for p in done.points if p.outcome in (Outcome.INVALID, Outcome.MISSING)}
    good = {c: p.samples for c, p in data.points.items() if p.samples and not p.closed and c not in dirty}
    if not good:
        return done.model_copy(update={"notes": [*done.notes, "nothing was recorded: no point has valid samples"]})
    path = baseline_path(options, dict(yardstick.fingerprint))
    written = baseline.record(
        path,
        recipe=options.recipe.name,
        hardware=path.stem,
        points=good,
        fingerprint=yardstick.fingerprint,
        recorded_at=gate.today(done.started_at),
        reason=options.reason,
        commit=done.commit,
        sglang_version=str(yardstick.fingerprint["software"].get("sglang", "")) or None,
        server_arguments=yardstick.fingerprint["server"],
        profiles=looked.stored(),
        graph_gib=next((c.value for c in done.checks if c.name == "graph memory"), None),
    )
    kinds = {"new": written.new, "tightened": written.tightened, "loosened": written.loosened}
    said = "; ".join(f"{kind} {', '.join(f'C={c}' for c in points)}" for kind, points in kinds.items() if points)
    note = f"recorded {path}: {said}. Commit that file with this run's report as the evidence"
    return done.model_copy(update={"notes": [*done.notes, note], "baseline_file": f"{path.parent.name}/{path.name}"})
