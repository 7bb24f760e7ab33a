"""One gate run from options to written result (edge): locks, leftovers, files."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfgate import baseline, campaign, fingerprint, gate, host_locks, paths, profiles, report
from perfgate.environments import Environments
from perfgate.gpu_guard import GpuGuard
from perfgate.options import Options
from perfgate.result import Outcome, RunResult
from perfgate.run_ab import Compare
from perfgate.run_single import Single
from perfgate.runs import Means, baseline_path, load_baseline
from perfgate.sampler import Show
from perfgate.server import ServerError
from perfgate.server.processes import end_leftovers
from perfgate.workload.client import Client
from perfgate.yardstick import Yardstick

LOCK_SECONDS = 1800.0
RESULT_FILES = ("result.json", "summary.md", "report.html", "answers.json.gz")


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
        with contextlib.ExitStack() as built:
            commit = options.against_commit
            sides = None if commit is None else built.enter_context(Environments(commit, show))
            means = Means(options, shared_folder, client, show, gpus, sides)
            one = Compare(means) if options.against else Single(means)
            done = one.run()
    save(done, options.report)
    if one.interrupted is not None:
        raise one.interrupted
    if options.record and isinstance(one, Single):
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


def _recorded(done: RunResult, one: Single, options: Options) -> RunResult:
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


@contextmanager
def measuring(show: Show) -> Iterator[None]:
    """Hold the cache folder, which one run at a time writes to, and this host's measuring lock: two runs at once would measure
    each other. Raises ServerError after LOCK_SECONDS.

    With ``$PERFGATE_SHARE_HOST`` the host is shared with other runs that say so (each with a home and GPUs of its own), and
    with no other run.
    """
    paths.cache_dir().mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_SECONDS
    with contextlib.ExitStack() as held:
        try:
            held.callback(host_locks.release, _wait_for(paths.measure_lock(), False, deadline, show))
            shared = bool(os.environ.get("PERFGATE_SHARE_HOST"))
            host = host_locks.folder() / paths.MEASURE_LOCK
            held.callback(host_locks.release, _wait_for(host, shared, deadline, show))
        except host_locks.LockError as error:
            raise ServerError(str(error)) from None
        yield


def _wait_for(path: Path, shared: bool, deadline: float, show: Show) -> int:
    told = math.inf
    while (number := host_locks.take(path, shared=shared)) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise ServerError(f"another run has been measuring on this host for {LOCK_SECONDS:.0f} s; see {path}")
        if left <= told - 5:
            show(f"another run is measuring on this host; waiting, at most {left:.0f} s")
            told = left
        time.sleep(min(0.2, left))
    return number


def _record(
    done: RunResult,
    data: campaign.CampaignData,
    yardstick: Yardstick,
    options: Options,
    looked: profiles.Profiles,
) -> RunResult:
    wrong = [c for c in done.checks if c.outcome is Outcome.INVALID and not c.name.startswith("law:")]
    if whole := [c for c in wrong if " C=" not in c.name]:  # the laws have made their points INVALID
        said = "; ".join(f"check {c.name}: {c.why}" for c in whole)
        return done.model_copy(update={"notes": [*done.notes, f"nothing was recorded: {said}"]})
    dirty = {p.concurrency for p in done.points if p.outcome in (Outcome.INVALID, Outcome.MISSING)}
    dirty |= {p.concurrency for p in done.points if any(c.name.endswith(f" C={p.concurrency}") for c in wrong)}
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
    told = {"notes": [*done.notes, note], "baseline_file": f"{path.parent.name}/{path.name}"}
    if done.outcome is Outcome.NO_BASELINE:  # which is no failure here, so the first line must not read like one
        told["why"] = f"recorded {len(good)} of {len(done.points)} points; there was nothing to compare them with"
    return done.model_copy(update=told)
