"""Takes one sample: flush, count, run the client, count again, and hand everything to the pure judges (edge)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfgate import diagnosis, serverlog, validity
from perfgate.recipe import Recipe
from perfgate.server import Server, http
from perfgate.server.logfile import LogFile
from perfgate.workload import Plan, Sample, SampleError, client, read_sample

Show = Callable[[str], None]


@dataclass(frozen=True)
class Failure:
    """Why there is no sample: the cause, the log lines that show it, and what to do."""

    cause: str
    evidence: tuple[str, ...]
    advice: str
    server_lost: bool
    message: str


@dataclass(frozen=True)
class Taken:
    """One attempt at a sample: the sample (or None) with what is wrong with it, or the failure that prevented it."""

    plan: Plan
    sample: Sample | None
    problems: tuple[validity.Problem, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        return self.sample is not None and self.failure is None and not any(p.invalid for p in self.problems)


class Sampler:
    """Takes samples on one server. ``folder`` gets the client's output and result line of each attempt."""

    def __init__(
        self, recipe: Recipe, server: Server, runner: client.Client, tokenizer: Path, folder: Path, start: int
    ) -> None:
        self.recipe, self.server, self.client, self.start = recipe, server, runner, start
        self._tokenizer, self._folder, self._count = tokenizer, folder, 0
        self.log = LogFile(server.log) if server.log is not None else None

    def take(self, plan: Plan, seed: int, show: Show) -> Taken:
        """One attempt. Never raises for what the server or client did: that comes back as a failure or as problems."""
        began = time.monotonic()
        taken = self._take(plan, seed, show)
        return dataclasses.replace(taken, seconds=time.monotonic() - began)

    def _take(self, plan: Plan, seed: int, show: Show) -> Taken:
        self._count += 1
        stem = self._folder / f"start{self.start}-{self._count:03d}-c{plan.concurrency}"
        result, output = stem.with_suffix(".jsonl"), stem.with_suffix(".client.txt")
        mark = self.log.mark() if self.log is not None else None
        try:
            before = self._quiet_counters()
        except http.ServerHttpError as error:
            return Taken(plan, None, failure=self._failure(str(error), None, ""))
        arguments = client.argv(plan, self.server.base_url, self._tokenizer, self.server.served_name, seed, result)
        try:
            run = self.client.run(
                arguments, result, output, self.recipe.limits.sample_seconds, self._ticker(plan, show)
            )
        except client.ClientError as error:
            return Taken(plan, None, failure=self._failure(str(error), None, str(error)))
        if not self.server.alive() or run.timed_out:
            if run.timed_out:
                self._wait_for_reason(run.seconds, show)
            what = f"no result within {self.recipe.limits.sample_seconds:.0f} s" if run.timed_out else "the server died"
            return Taken(plan, None, failure=self._failure(what, run.exit_code, run.output, hung=run.timed_out))
        return self._read(plan, run, before, mark)

    def _quiet_counters(self) -> dict[str, float] | None:
        http.flush_cache(self.server.base_url)
        return http.counters(self.server.base_url)

    def _read(self, plan: Plan, run: client.ClientRun, before: dict[str, float] | None, mark: int | None) -> Taken:
        try:
            after = http.counters(self.server.base_url)
        except http.ServerHttpError as error:
            return Taken(plan, None, failure=self._failure(str(error), run.exit_code, run.output))
        if run.exit_code != 0 or len(run.lines) != 1:
            what = f"the client ended with exit code {run.exit_code} and added {len(run.lines)} result lines, expected 0 and 1"
            return Taken(plan, None, failure=self._failure(what, run.exit_code, run.output))
        try:
            sample = read_sample(run.lines[0], run.exit_code, before, after)
        except SampleError as error:
            return Taken(plan, None, failure=self._failure(f"the client's result line: {error}", 0, run.output))
        sample = dataclasses.replace(
            sample,
            started_at=run.started_at,
            ended_at=run.ended_at,
            server_start=self.start,
            client_cpu_share=run.cpu_seconds / run.seconds if run.seconds > 0 else None,
        )
        window, unread = self._window(mark)
        found = validity.check(sample, window, plan, limits=self._limits, served_model_name=self.server.served_name)
        problems = [*found, *unread]
        if self.log is not None and mark is not None and self.log.lost(mark):
            problems.append(
                validity.Problem(
                    kind=validity.ProblemKind.UNREADABLE_LOG,
                    message="the server's log was truncated or replaced during the sample: what happened in it is unknown",
                    evidence=(str(self.log.path.name),),
                )
            )
        return Taken(plan, sample, tuple(problems))

    @property
    def _limits(self) -> validity.Limits:
        work = self.recipe.workload
        return validity.Limits(little_share=work.little_share, cached_share=work.max_cached_share)

    def _window(self, mark: int | None) -> tuple[serverlog.ServerLog | None, list[validity.Problem]]:
        """The part of the log that the sample wrote. A log of which nothing can be read is a problem, not a clean bill."""
        if self.log is None or mark is None:
            return None, []
        try:
            return serverlog.parse(self.log.since(mark)), []
        except serverlog.ServerLogError as error:
            kind = validity.ProblemKind.UNREADABLE_LOG
            return None, [validity.Problem(kind=kind, message=str(error), evidence=(self.log.path.name,))]

    def _failure(self, what: str, code: int | None, output: str, hung: bool = False) -> Failure:
        lost = not self.server.alive()
        text = self.log.whole() if self.log is not None else ""
        server_code = self.server.exit_code() if lost else None
        found = diagnosis.diagnose(text, exit_code=server_code if lost else code, client_output=output)
        cause = found.cause.name
        if cause in ("NONE", "UNKNOWN"):
            cause = "HANG_NO_PROGRESS" if hung else "SERVER_DIED" if lost else "CLIENT_FAILED"
        evidence = tuple(found.evidence) or tuple(_tail(text, 3) + _tail(output, 3))
        return Failure(cause, evidence, found.advice, server_lost=lost or hung, message=what)

    def _wait_for_reason(self, already: float, show: Show) -> None:
        """After a client deadline, keep the server until its own watchdog has said why (C15)."""
        limit = float(self.server.info.get("watchdog_timeout") or 0) + 15 - already
        deadline = time.monotonic() + min(limit, self.recipe.limits.hang_seconds)
        while self.log is not None and time.monotonic() < deadline and self.server.alive():
            if "atchdog timeout" in self.log.tail(65536):
                return
            show(
                f"the client ran out of time; waiting for the server's watchdog, {deadline - time.monotonic():.0f} s left"
            )
            time.sleep(1)

    def _ticker(self, plan: Plan, show: Show) -> client.Tick:
        limit, last = self.recipe.limits.sample_seconds, [0.0]

        def tick(elapsed: float) -> None:
            if elapsed - last[0] < 5:
                return
            last[0] = elapsed
            live = self.log.live_throughput() if self.log is not None else None
            rate = f", {live:.0f} tok/s now" if live is not None else ""
            show(f"C={plan.concurrency}: {elapsed:.0f} s in{rate} (deadline {limit:.0f} s)")

        return tick


def _tail(text: str, lines: int) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-lines:]
