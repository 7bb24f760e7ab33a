"""What a run's points are judged by, and the judging of one of them (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perfgate import past_runs
from perfgate.baseline import Baseline, BaselineFile, Bounds, smoke
from perfgate.recipe import Point, Recipe
from perfgate.result import Outcome
from perfgate.verdict import Verdict, judge, starts_elsewhere
from perfgate.workload import Sample

AGREE = 0.001
"""Relative spread between server starts that PASS allows for where the recipe states none."""

UNSTATED = 0.01
"""What an alarm then allows for, as long as neither side has several starts: three of one server lay 1.5 % and 2.6 % apart on
an H200 (docs/h200.md), and with 0.1 % one start against another was a false alarm in every second run."""


def point_bounds(recipe: Recipe, concurrency: int) -> Bounds:
    """How much worse counts at a point of a recipe."""
    noise, stated = recipe.point(concurrency).noise, recipe.between_starts(concurrency)
    absolute = {"throughput": noise.throughput, "step_time": noise.step_ms}
    return Bounds(
        relative=recipe.bounds.relative,
        absolute={name: value for name, value in absolute.items() if value > 0},
        between_start=AGREE if stated is None else stated,
        unstated=UNSTATED if stated is None else 0.0,
    )


@dataclass(frozen=True)
class Yardstick:
    """What the points are judged by: a baseline file of this fingerprint, or the recipe's smoke floors, or nothing."""

    recipe: Recipe
    file: BaselineFile | None
    fingerprint: Mapping[str, Any]
    recording: bool
    samples: int
    max_samples: int
    points: int
    past: past_runs.Past = field(default_factory=dict)
    """This machine's own runs of the same fingerprint, by point, oldest first."""

    @property
    def judged_by(self) -> str:
        if self.recording:
            return "recording"
        if self.file is not None:
            return "baseline"
        return "smoke" if any(p.smoke for p in self.recipe.points) else "nothing"

    def baseline(self, concurrency: int) -> Baseline | None:
        """The stored baseline. The smoke floor stands in only where this hardware has no file at all: a point that a
        file lacks, or a file of another fingerprint, must not pass by a floor made for any machine."""
        if self.file is not None:
            return self.file.point(concurrency, self.bounds(concurrency))
        floor = self.recipe.point(concurrency).smoke
        return None if floor is None or self.recording else smoke(concurrency, floor.throughput, floor.step_ms)

    def bounds(self, concurrency: int) -> Bounds:
        """How much worse counts at a point, from the recipe."""
        return point_bounds(self.recipe, concurrency)

    def judge(
        self,
        concurrency: int,
        samples: Sequence[Sample],
        problems: Sequence[str] = (),
        others: Mapping[int, Sequence[Sample]] | None = None,
    ) -> Verdict:
        """Judge one point; ``others`` are the samples of the run's other points, which show its starts too."""
        baseline = self.baseline(concurrency)
        return judge(
            samples,
            baseline,
            recording=self.recording,
            min_samples=self.samples,
            max_samples=self.max_samples,
            comparisons=2 * self.points,
            problems=problems,
            fingerprint=self.fingerprint if baseline is not None and not baseline.is_smoke else None,
            targets=_targets(self.recipe.point(concurrency)),
            concurrency=concurrency,
            elsewhere=starts_elsewhere([(s, self.baseline(c)) for c, s in (others or {}).items() if c != concurrency]),
        )

    def enough(
        self, concurrency: int, samples: Sequence[Sample], others: Mapping[int, Sequence[Sample]] | None = None
    ) -> bool:
        """Whether more samples would not change the answer."""
        if self.recording:
            return len(samples) >= self.max_samples
        return self.judge(concurrency, samples, others=others).outcome is not Outcome.INCONCLUSIVE


def _targets(point: Point) -> dict[str, float]:
    target = point.target
    if target is None:
        return {}
    values = {"throughput": target.throughput, "step_time": target.step_ms}
    return {name: value for name, value in values.items() if value is not None}
