"""Samples and a baseline in, one verdict a point and one a run out. docs/evaluation.md says how good it is."""

from perfgate.verdict.ab import judge_ab, rounds_elsewhere
from perfgate.verdict.change import step_change
from perfgate.verdict.compare import Comparison
from perfgate.verdict.elsewhere import starts_elsewhere
from perfgate.verdict.levels import Levels, levels
from perfgate.verdict.model import Verdict
from perfgate.verdict.point import judge
from perfgate.verdict.run import run_verdict
from perfgate.verdict.sequential import next_step

__all__ = [
    "Comparison",
    "Levels",
    "Verdict",
    "judge",
    "judge_ab",
    "levels",
    "next_step",
    "rounds_elsewhere",
    "run_verdict",
    "starts_elsewhere",
    "step_change",
]
