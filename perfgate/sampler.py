"""Takes one sample: flush, count, run the client, count again, and hand everything to the pure judges (edge)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perfgate import diagnosis, jit_files, serverlog, validity
from perfgate.gpu_guard import watching
from perfgate.gpu_watch import Seen, Watch
from perfgate.proof import PatchProof
from perfgate.recipe import Recipe
from perfgate.redact import redact_text
from perfgate.server import Server, http
from perfgate.server.lifecycle import DEADLINE_CODE
from perfgate.server.logfile import LogFile
from perfgate.workload import Plan, Sample, SampleError, client, read_sample

Show = Callable[[str], None]

STEP_SECONDS = 1.0
"""Wall clock and steady clock may differ by so much over a sample: NTP slews by 0.5 ms a second, and sets what is more."""


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
    """Takes samples on one server. ``folder`` gets the client's output and result line of each attempt.

    ``watch`` makes a watch over the GPUs for each sample (or None), ``proof`` holds the server to its patches, and
    ``windows`` gets the span of every client run, in seconds since the epoch.
    """

    def __init__(
        self,
        recipe: Recipe,
        server: Server,
        runner: client.Client,
        tokenizer: Path,
        folder: Path,
        start: int,
        watch: Callable[[], Watch | None] = lambda: None,
        proof: PatchProof | None = None,
        windows: list[tuple[float, float]] | None = None,
    ) -> None:
        self._watch, self._proof = watch, proof
        self._cut_off = False
        """The last client was killed or failed: what it had in flight may still be ending on the server."""
        self.windows = windows if windows is not None else []
        self.recipe, self.server, self.client, self.start = recipe, server, runner, start
        self._tokenizer, self._folder, self._count = tokenizer, folder, 0
        self._stepped = 0.0
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
            return Taken(plan, None, failure=self._failure(None, str(error), None, ""))
        arguments = client.argv(plan, self.server.base_url, self._tokenizer, self.server.served_name, seed, result)
        began, steady = time.time(), time.monotonic()
        try:
            with watching(self._watch()) as watch:
                run = self.client.run(
                    arguments, result, output, self.recipe.limits.sample_seconds, self._ticker(plan, show)
                )
            self._cut_off = run.exit_code != 0
        except client.ClientError as error:
            self._cut_off = True
            return Taken(plan, None, failure=self._failure(plan, str(error), None, str(error)))
        finally:
            self.windows.append((began, time.time()))
        self._stepped = time.time() - began - (time.monotonic() - steady)
        if not self.server.alive() or run.timed_out:
            if run.timed_out:
                self._wait_for_reason(show)
            what = f"no result within {self.recipe.limits.sample_seconds:.0f} s" if run.timed_out else "the server died"
            failure = self._failure(plan, what, run.exit_code, run.output, hung=run.timed_out)
            return Taken(plan, None, failure=failure)
        return self._read(plan, run, before, mark, watch.seen() if watch is not None else None)

    def _quiet_counters(self) -> dict[str, float] | None:
        http.flush_cache(self.server.base_url, patience=http.LEFTOVER_SECONDS if self._cut_off else 0.0)
        self._cut_off = False
        return http.counters(self.server.base_url)

    def _read(
        self, plan: Plan, run: client.ClientRun, before: dict[str, float] | None, mark: int | None, seen: Seen | None
    ) -> Taken:
        try:
            after = http.counters(self.server.base_url)
        except http.ServerHttpError as error:
            return Taken(plan, None, failure=self._failure(plan, str(error), run.exit_code, run.output))
        if run.exit_code != 0 or len(run.lines) != 1:
            what = f"the client ended with exit code {run.exit_code} and added {len(run.lines)} result lines, expected 0 and 1"
            return Taken(plan, None, failure=self._failure(plan, what, run.exit_code, run.output))
        try:
            sample = read_sample(run.lines[0], run.exit_code, before, after)
        except SampleError as error:
            failure = self._failure(plan, f"the client's result line: {error}", 0, run.output)
            return Taken(plan, None, failure=failure)
        sample = dataclasses.replace(
            sample,
            started_at=run.started_at,
            ended_at=run.ended_at,
            server_start=self.start,
            client_cpu_share=run.cpu_seconds / run.seconds if run.seconds > 0 else None,
            clocks_mhz=seen.clocks_mhz if seen else (),
            lowest_clocks_mhz=seen.lowest_clocks_mhz if seen else (),
            clock_readings=seen.clock_readings if seen else None,
            clock_drift=seen.clock_drift if seen else None,
            power_w=seen.power_w if seen else (),
            hottest_c=seen.hottest_c if seen else (),
            throttle_reasons=seen.throttle_reasons if seen else (),
            foreign_pids=seen.foreign_pids if seen else (),
        )
        window, unread = self._window(mark)
        found = validity.check(sample, window, plan, limits=self._limits, served_model_name=self.server.served_name)
        problems = [*(named(p, seen) for p in found), *unread, *self._around(run, seen)]
        if self.log is not None and mark is not None and self.log.lost(mark):
            problems.append(
                validity.Problem(
                    kind=validity.ProblemKind.UNREADABLE_LOG,
                    message="the server's log was truncated or replaced during the sample: what happened in it is unknown",
                    evidence=(str(self.log.path.name),),
                )
            )
        return Taken(plan, sample, tuple(problems))

    def _around(self, run: client.ClientRun, seen: Seen | None) -> list[validity.Problem]:
        """What the log and the client's figures cannot show: compiled files, patches that did not run, an unseen GPU."""
        found = jit_files.check(self.recipe.watched_caches, run.started_at)
        if self._proof is not None:
            found += self._proof.check([(run.started_at, run.ended_at)])
        if abs(self._stepped) > STEP_SECONDS:
            message = (
                f"the machine's clock was set by {self._stepped:+.1f} s during the sample: its log lines have no times"
            )
            found.append(validity.Problem(validity.ProblemKind.CLOCK_STEPPED, message))
        if seen is not None and seen.failure is not None:
            found.append(validity.Problem(validity.ProblemKind.UNWATCHED, seen.failure))
        return found

    @property
    def _limits(self) -> validity.Limits:
        work = self.recipe.workload
        return validity.Limits(
            little_share=work.little_share, cached_share=work.max_cached_share, stall_s=work.stall_seconds
        )

    def _window(self, mark: int | None) -> tuple[serverlog.ServerLog | None, list[validity.Problem]]:
        """The part of the log that the sample wrote. A log of which nothing can be read is a problem, not a clean bill."""
        if self.log is None or mark is None:
            return None, []
        try:
            return serverlog.parse(self.log.since(mark)), []
        except serverlog.ServerLogError as error:
            kind = validity.ProblemKind.UNREADABLE_LOG
            return None, [validity.Problem(kind=kind, message=str(error), evidence=(self.log.path.name,))]

    def _failure(self, plan: Plan | None, what: str, code: int | None, output: str, hung: bool = False) -> Failure:
        """``plan`` is what the client was running, None where it had not started: nothing is held against its size then."""
        lost = not self.server.alive()
        text = self.log.whole() if self.log is not None else ""
        ended = self.server.exit_code() if lost else DEADLINE_CODE if hung else code
        # A server that is gone is judged by its own log and exit code: a client that lost its connection is the cascade,
        # and an exit code beside a client's output would be read as the client's.
        # An exit code without a client's output would be read as the server's, so a client that was silent is given a word.
        said = output or ("(the client printed nothing)" if code is not None else "")
        asked = plan.concurrency if plan is not None else None
        found = diagnosis.diagnose(text, ended, client_output="" if lost else said, concurrency=asked)
        cause = found.cause.name
        if cause in ("NONE", "UNKNOWN"):
            cause = "HANG_NO_PROGRESS" if hung else "SERVER_DIED" if lost else "CLIENT_FAILED"
        evidence = tuple(found.evidence) or tuple(_tail(text, 3) + _tail(output, 3))
        if lost and ended is not None:
            what = f"{what} (exit code {ended})"
        return Failure(
            cause,
            tuple(redact_text(line) for line in evidence),
            found.advice,
            server_lost=lost or hung,
            message=redact_text(what),
        )

    def _wait_for_reason(self, show: Show) -> None:
        """After a client deadline, keep the server until its own watchdog has said why (C15)."""
        if self.log is None:
            return
        deadline = time.monotonic() + self.recipe.limits.hang_seconds
        asked = self.server.info.get("watchdog_timeout")
        stated = "" if asked is None else f"watchdog_timeout={asked}\n"
        while self.server.alive():
            wait = diagnosis.keep_server_for_s(stated + self.log.tail(65536), self.log.silent_for())
            left = min(wait, deadline - time.monotonic())
            if left <= 0:
                return
            show(f"the client ran out of time; waiting for the server's watchdog, at most {left:.0f} s left")
            time.sleep(min(1.0, left))

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


def named(found: validity.Problem, seen: Seen | None) -> validity.Problem:
    """A foreign process with its name in the evidence, where the watch knows it."""
    if seen is None or found.kind is not validity.ProblemKind.FOREIGN_PROCESS:
        return found
    return dataclasses.replace(found, evidence=seen.strangers)


def _tail(text: str, lines: int) -> list[str]:
    return [line for line in text.splitlines() if line.strip()][-lines:]
