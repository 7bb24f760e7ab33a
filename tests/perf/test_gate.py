"""The gate itself: one test a point, and one for each thing that must hold of the whole server."""

from __future__ import annotations

import pytest

from perfgate.result import CheckResult, Outcome, PointResult, RunResult

pytestmark = [pytest.mark.perf, pytest.mark.xdist_group("perf")]


def test_throughput_floor(gate: RunResult, concurrency: int, record_property: pytest.FixtureRequest) -> None:
    """Throughput and step time of one point are at or above their floors, measured and valid."""
    point = next(p for p in gate.points if p.concurrency == concurrency)
    record_property("verdict", str(point.outcome))  # type: ignore[operator]
    for metric in point.metrics:
        record_property(metric.name, metric.value)  # type: ignore[operator]
    recorded = gate.judged_by == "recording" and point.outcome is Outcome.NO_BASELINE
    if not (point.outcome.passes or recorded):
        pytest.fail(explain(point), pytrace=False)


def test_decode_runs_from_captured_graphs(gate: RunResult, concurrency: int) -> None:
    """Every concurrency asked for fits the captured decode graphs, or the recipe says why there are none."""
    require(gate, f"decode graphs C={concurrency}")


def test_server_starts_in_time(gate: RunResult) -> None:
    """The start took no longer than the recipe allows."""
    require(gate, "start-up time")


def test_kv_pool_holds_the_largest_point(gate: RunResult) -> None:
    """The KV pool has room for every request of the largest point at once."""
    require(gate, "KV capacity")


def test_points_obey_the_physics_of_a_decode_step(gate: RunResult) -> None:
    """Little's law and the step-time law hold over all points."""
    broken = [c for c in gate.checks if c.name.startswith("law:") and not c.outcome.passes]
    if broken:
        pytest.fail("\n".join(describe(c) for c in broken), pytrace=False)


def test_every_other_check_of_the_run_passes(gate: RunResult) -> None:
    """Whatever else was checked holds too: no check may fail without a test that fails with it."""
    named = ("decode graphs C=", "start-up time", "KV capacity", "law:")
    others = [c for c in gate.checks if not c.name.startswith(named)]
    recording = gate.judged_by == "recording"
    broken = [c for c in others if not c.outcome.passes and not (recording and c.outcome is Outcome.NO_BASELINE)]
    if broken:
        pytest.fail("\n".join(describe(c) for c in broken), pytrace=False)


def require(gate: RunResult, name: str) -> None:
    found = [c for c in gate.checks if c.name == name]
    if not found:
        pytest.fail(f"check {name!r} was not made: {gate.why}", pytrace=False)
    bad = [c for c in found if not c.outcome.passes]
    if bad:
        pytest.fail("\n".join(describe(c) for c in bad), pytrace=False)


def describe(check: CheckResult) -> str:
    return f"{check.outcome} {check.name}: {check.why}"


def explain(point: PointResult) -> str:
    lines = [f"{point.outcome} at C={point.concurrency}: {point.why}"]
    lines += [f"  {m.outcome} {m.name}: {m.why}" for m in point.metrics if not m.outcome.passes and m.why]
    if point.cause != "NONE":
        lines.append(f"  cause: {point.cause}")
    lines += [f"  | {line}" for line in point.evidence]
    if point.advice:
        lines.append(f"  what to do: {point.advice}")
    return "\n".join(lines)
