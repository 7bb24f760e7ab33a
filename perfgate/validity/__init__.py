"""Does a sample count? Its figures, its server's log and counters, and the machine, against its plan."""

from perfgate.validity.check import check
from perfgate.validity.compare import compare, compare_arms, steady_decode, tokens_per_chunk
from perfgate.validity.counters import families
from perfgate.validity.load import little_share
from perfgate.validity.periodic import Beat, Span, beat_problem, falls_into, find_beat, periodic_strays, stray_beat
from perfgate.validity.problem import DEFAULT_LIMITS, Limits, Problem, ProblemKind
from perfgate.validity.runs import client_runs, sample_window

__all__ = [
    "DEFAULT_LIMITS",
    "Beat",
    "Limits",
    "Problem",
    "ProblemKind",
    "Span",
    "beat_problem",
    "check",
    "client_runs",
    "compare",
    "compare_arms",
    "falls_into",
    "families",
    "find_beat",
    "little_share",
    "periodic_strays",
    "sample_window",
    "steady_decode",
    "stray_beat",
    "tokens_per_chunk",
]
