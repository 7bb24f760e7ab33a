"""Two servers one change apart, side by side or in turns, judged in pairs (edge)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perfgate import (
    ab,
    campaign,
    closing,
    gate,
    output_gate,
    point_results,
    profiling,
    turns,
)
from perfgate.result import Outcome, RunResult
from perfgate.revision import RevisionError
from perfgate.runs import Means, Run
from perfgate.server import ServerError
from perfgate.verdict import Verdict, judge_ab, rounds_elsewhere, step_change


class Compare(Run):
    """Two servers, one recipe or one commit's kernels apart; in turns where memory holds one. ``--against`` is the old side."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        options, sides = means.options, means.sides
        assert options.against is not None
        self.against = options.against
        self._sides = [f"judged against recipe {self.against.name}, in pairs"]
        if options.against_commit is not None:
            try:
                self._sides = options.against_commit.notes(options.recipe_file)
            except RevisionError as error:
                raise ServerError(str(error)) from None
        old_options = dataclasses.replace(options, recipe=self.against, port=None, report=options.report / "against")
        folder = means.folder.with_name(means.folder.name + "-against")
        self._old_shared, self._old_host = means.host(old_options, folder, None if sides is None else sides.old)
        self.rounds = options.rounds
        if self.rounds is not None:
            self.order = self.rounds.order(self.order)
            self._sides = [*self._sides, self.rounds.note()]
        self.data = ab.AbData(old=campaign.new(self.against, self.order), new=campaign.new(options.recipe, self.order))
        self._answers = output_gate.OutputGate(options.recipe, self.against, means.show, options.report)

    def run(self) -> RunResult:
        options = self.options
        data = self.data
        old = ab.Arm("old", self.against, self._old_host, data.old)
        new = ab.Arm("new", options.recipe, self.host, data.new)

        try:
            self.guarded(data, lambda: self._measure(old, new, data))
            self.prove_replay(self._old_host, self.host)  # in turns each start was proved, and none is left
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
            rows = point_results.sample_rows(point.attempts)
            spoilt = point_results.unmeasured(point, rows)
            verdict = self._judge(concurrency, data.pairs.get(concurrency, []))
            if spoilt is None:
                verdicts[concurrency] = verdict
            points.append(spoilt or point_results.judged(verdict, concurrency, rows))
        told = step_change(verdicts)
        data.new.server_seconds += data.old.server_seconds
        data.new.client_seconds += data.old.client_seconds + self.context.seconds
        return gate.result(
            data.new,
            self.yardstick(),
            facts,
            points=points,
            started_at=self.started_at,
            seconds=self.seconds,
            left_out=options.left_out,
            notes=[
                *self._sides,
                *closing.autotuners({"old ": self._old_host.starts, "new ": self.host.starts}),
                *([] if told is None else [f"step time over all points: {told}"]),
                *self.profiles.notes(),
            ],
            command=options.command,
            commit=self.commit,
            extra={"against": self._against(), **self.profiles.as_extra(), **self.context.as_extra()},
            judged_by="ab",
            checked=[
                *self._answers.checks(),
                *self.context.checks(),
                *closing.deaths(self._old_host.starts, "old "),
                *closing.deaths(self.host.starts, "new "),
                *self.whole(),
            ],
        )

    def _measure(self, old: ab.Arm, new: ab.Arm, data: ab.AbData) -> None:
        if self.rounds is not None:
            turns.run(old, new, self.order, self.rounds, self._enough, self._visit, self.show, data)
            return
        ab.run(old, new, self.order, self._enough, self.show, data)
        self.context.measure(self.host.live)
        self._answers.compare(self._old_host, self.host)
        if self.options.profile:
            self._look(data, old, new)

    def _visit(self, arm: ab.Arm) -> None:
        """What is asked of a side's server at the end of its turn, before it goes."""
        if arm.host is self.host:
            self.context.measure(self.host.live)
            self._answers.hold(self.host)
            self.host.prove_replay()  # Ctrl-C in it ends the turns: those to come would be proved by nothing
        else:
            self._answers.ask(self._old_host)
            self._old_host.prove_replay()

    def _against(self) -> dict[str, object]:
        commit = self.options.against_commit
        return {
            "recipe": self.against.name,
            **({} if commit is None else {"commit": commit.sha}),
            **({} if self.rounds is None else {"starts": len(self.host.starts)}),
        }

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
            # Only the number of looks counts, and in turns one is taken a round.
            min_samples=self.order.max_samples - self._looks,
            max_samples=self.order.max_samples,
            comparisons=2 * len(self.order.concurrencies),
            elsewhere=rounds_elsewhere([taken for c, taken in self.data.pairs.items() if c != concurrency]),
        )

    @property
    def _looks(self) -> int:
        """How often the data is looked at before its last."""
        if self.rounds is not None:
            return self.rounds.most - self.rounds.least
        return self.order.max_samples - self.order.samples

    def _enough(self, concurrency: int, pairs: Sequence[ab.Pair]) -> bool:
        return self._judge(concurrency, pairs).outcome is not Outcome.INCONCLUSIVE
