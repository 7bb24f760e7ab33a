"""One gate run from options to written result (edge): locks, leftovers, campaign, judging, files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from perfgate import baseline, campaign, fingerprint, gate, paths, report
from perfgate.host import LocalHost
from perfgate.options import Options
from perfgate.result import RunResult
from perfgate.sampler import Failure, Show
from perfgate.server import ServerError
from perfgate.server.processes import end_leftovers
from perfgate.server.shared import SharedServer
from perfgate.workload import Sample
from perfgate.workload.client import Client, ClientError

LOCK_SECONDS = 1800.0
RESULT_FILES = ("result.json", "summary.md", "report.html")


def prepare(options: Options) -> None:
    """Empty the report folder of an earlier run's results, so that a run that dies early leaves none that look like its own."""
    options.report.mkdir(parents=True, exist_ok=True)
    for name in RESULT_FILES:
        (options.report / name).unlink(missing_ok=True)


def load_baseline(options: Options, print_of_machine: dict[str, object]) -> baseline.BaselineFile | None:
    """The baseline file of this recipe and hardware, or None where there is none. Raises BaselineError for a bad one."""
    try:
        return baseline.load(baseline_path(options, print_of_machine))
    except baseline.BaselineMissing:
        return None


def baseline_path(options: Options, print_of_machine: dict[str, object]) -> Path:
    return options.baselines / options.recipe.name / f"{fingerprint.hardware_name(print_of_machine)}.json"


def run(options: Options, shared_folder: Path, show: Show) -> RunResult:
    """Measure, judge and write. Ctrl-C ends the measuring, writes what there is and is raised again."""
    started_at, began = time.time(), time.monotonic()
    order = campaign.Order(options.concurrencies, options.samples, options.max_samples, options.seed)
    load_baseline(options, fingerprint.collect({}))  # a broken baseline file is told before a minute is spent
    with measuring(show), Client(options.report / "client-preload.log", options.recipe.server.env) as client:
        for line in end_leftovers(paths.ledger_dir()):
            show(line)
        shared = SharedServer(shared_folder, paths.ledger_dir(), options.recipe.limits.stop_seconds)
        host = LocalHost(options, options.recipe, shared, client, show)
        judge = _Judge(options, host)
        data = campaign.new(options.recipe, order)
        interrupted: BaseException | None = None
        try:
            client.wait_ready()
            campaign.run(options.recipe, host, order, judge.enough, show, data)
        except KeyboardInterrupt as stop:
            interrupted = stop
            data.close("UNKNOWN", "the run was interrupted before this point was done", "run it again", options.samples)
        except (ClientError, ServerError) as error:
            data.close("CLIENT_FAILED", str(error), "mend what the message names and run again", options.samples)
        finally:
            facts = host.facts()
            if options.server_url is None:
                shared.release()
        yardstick = judge.yardstick()
        notes = [] if options.server_url is None else [f"measured a server that already ran: {options.server_url}"]
        done = gate.result(
            data,
            yardstick,
            facts,
            started_at=started_at,
            seconds=time.monotonic() - began,
            left_out=options.left_out,
            notes=[*notes, *_how_judged(yardstick, options)],
            command=options.command,
            commit=fingerprint.git_commit(options.recipe_file.parent),
        )
    if options.record and interrupted is None:
        done = _record(done, data, yardstick, options)
    report.save(done, options.report)
    if interrupted is not None:
        raise interrupted
    return done


@contextmanager
def measuring(show: Show) -> Iterator[None]:
    """Hold this host's measuring lock: two runs at once would measure each other."""
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
                raise ServerError(f"another run has been measuring on this host for {LOCK_SECONDS:.0f} s; see {lock.lock_file}") from None
            show(f"another run is measuring on this host; waiting, at most {left:.0f} s")
    try:
        yield
    finally:
        lock.release()


class _Judge:
    """Judges while samples come in; the fingerprint is known once the server is up."""

    def __init__(self, options: Options, host: LocalHost) -> None:
        self._options, self._host = options, host
        self._made: gate.Yardstick | None = None

    def yardstick(self) -> gate.Yardstick:
        if self._made is None or not self._made.fingerprint.get("server"):
            options = self._options
            info = self._host.server.info if self._host.server is not None else {}
            machine = fingerprint.collect(info)
            self._made = gate.Yardstick(
                recipe=options.recipe,
                file=load_baseline(options, machine),
                fingerprint=machine,
                recording=options.record,
                samples=options.samples,
                max_samples=options.max_samples,
                points=len(options.concurrencies),
            )
        return self._made

    def enough(self, concurrency: int, samples: Sequence[Sample]) -> bool:
        return self.yardstick().enough(concurrency, samples)


def _how_judged(yardstick: gate.Yardstick, options: Options) -> list[str]:
    if yardstick.judged_by != "smoke":
        return []
    again = f"pytest -m perf --recipe {options.recipe.name} --record --reason 'first baseline of this machine'"
    return [
        "only the recipe's smoke floor judged this run, since there is no baseline of this machine; it catches a "
        f"disaster, not a regression. Record this machine with: {again}"
    ]


def _record(done: RunResult, data: campaign.CampaignData, yardstick: gate.Yardstick, options: Options) -> RunResult:
    good = {c: p.samples for c, p in data.points.items() if p.samples and not p.closed}
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
    )
    note = f"recorded {', '.join(f'C={c}' for c in sorted(good))} in {path}: {written}; commit that file"
    return done.model_copy(update={"notes": [*done.notes, note], "baseline_file": f"{path.parent.name}/{path.name}"})


__all__ = ["Failure", "baseline_path", "load_baseline", "measuring", "prepare", "run"]
