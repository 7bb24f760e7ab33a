"""One server against its baseline (edge)."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate import (
    campaign,
    closing,
    gate,
    local_history,
    past_runs,
    profiles,
    profiling,
)
from perfgate.options import Options
from perfgate.result import Outcome, RunResult
from perfgate.runs import Means, Run
from perfgate.workload import Sample
from perfgate.yardstick import Yardstick


class Single(Run):
    """One server against its baseline."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self.data = campaign.new(self.options.recipe, self.order)

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
            notes=[
                *_how_judged(yardstick, options),
                *closing.autotuners({"": self.host.starts}),
                *self.profiles.notes(),
            ],
            command=options.command,
            commit=self.commit,
            extra={**self.profiles.as_extra(), **self.context.as_extra()},
            checked=[*self.context.checks(), *closing.deaths(self.host.starts), *self.whole()],
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

    def _remember(self, done: RunResult, yardstick: Yardstick) -> RunResult:
        """Add the run to this machine's own history. A server that ran before is somebody else's, and left out."""
        notes = list(self.history_notes)
        if self.options.server_url is None:
            entries = past_runs.entries(done.points, gate.today(done.started_at), done.commit)
            path = self.history_path(yardstick.fingerprint)
            state = local_history.state(self.options.recipe, yardstick.fingerprint)
            notes += local_history.append(path, state, entries)
        return done.model_copy(update={"notes": [*done.notes, *notes]})


def _how_judged(yardstick: Yardstick, options: Options) -> list[str]:
    notes = [] if options.server_url is None else [f"measured a server that already ran: {options.server_url}"]
    if yardstick.judged_by == "smoke":
        again = f"pytest -m perf --recipe {options.recipe.name} --record --reason 'first baseline of this machine'"
        notes.append(
            "only the recipe's smoke floor judged this run, since there is no baseline of this machine; it catches a "
            f"disaster, not a regression. Record this machine with: {again}"
        )
    return notes
