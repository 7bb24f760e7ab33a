"""The real samples are judged as people judged them, from the result lines alone and with the server's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.serverlog import ServerLog, parse
from perfgate.validity import Problem, ProblemKind, check, client_runs, little_share
from perfgate.workload import Plan, Sample, read_sample

JIT = "h200_v4mini_jit_in_window"
STALLS = "h200_v4mini_silent_stalls"
CPU = "cpu_tiny_llama"
CASES = {
    (JIT, 0): (Plan(16, 64, 256, 128), True),
    (JIT, 1): (Plan(64, 256, 256, 128), True),
    (STALLS, 0): (Plan(64, 192, 256, 128), True),
    (STALLS, 1): (Plan(1, 5, 256, 128), False),
    (STALLS, 2): (Plan(16, 80, 256, 128), False),
    (STALLS, 3): (Plan(64, 320, 256, 128), True),
    (STALLS, 4): (Plan(64, 320, 256, 128), True),
    (CPU, 0): (Plan(1, 64, 64, 32), False),
    (CPU, 1): (Plan(16, 64, 64, 32), False),
    (CPU, 2): (Plan(64, 256, 64, 32), False),
}
RESULTS = {CPU: "cpu_tiny_llama_c1_c16_c64.jsonl"}


def _sample(data_dir: Path, name: str, index: int) -> Sample:
    return read_sample((data_dir / RESULTS.get(name, f"{name}.jsonl")).read_text().splitlines()[index])


def _log(data_dir: Path, name: str) -> ServerLog:
    return parse((data_dir / f"{name}.server.log").read_bytes().decode())


def _of(problems: list[Problem], kind: ProblemKind) -> list[Problem]:
    return [p for p in problems if p.kind is kind]


@pytest.mark.parametrize("with_log", [False, True], ids=["result line", "with log"])
@pytest.mark.parametrize(("name", "index"), CASES)
def test_standstill_is_found_where_there_was_one_and_nowhere_else(
    data_dir: Path, name: str, index: int, with_log: bool
) -> None:
    plan, stalled = CASES[name, index]
    problems = check(_sample(data_dir, name, index), _log(data_dir, name) if with_log else None, plan)
    found = _of(problems, ProblemKind.STANDSTILL)
    assert bool(found) is stalled
    assert all(p.invalid and p.evidence for p in found)


@pytest.mark.parametrize(("name", "index"), [key for key, (_, stalled) in CASES.items() if not stalled])
def test_result_line_of_a_healthy_run_has_nothing_that_makes_it_invalid(data_dir: Path, name: str, index: int) -> None:
    plan, _ = CASES[name, index]
    assert [p for p in check(_sample(data_dir, name, index), None, plan) if p.invalid] == []


@pytest.mark.parametrize(("index", "tokens_per_s"), [(1, 511), (2, 4612)])
def test_healthy_h200_samples_lie_where_littles_law_expects_them(data_dir: Path, index: int, tokens_per_s: int) -> None:
    sample = _sample(data_dir, STALLS, index)
    assert int(sample.output_throughput) == tokens_per_s
    share = little_share(sample, CASES[STALLS, index][0])
    assert share is not None
    assert 0.65 < share < 0.90  # 0.86 and 0.69: what a run without a standstill shows


@pytest.mark.parametrize(("index", "cached"), [(0, "4.3%"), (1, "4.9%"), (2, "9.8%")])
def test_cached_tokens_and_longer_prompts_of_the_cpu_sweep_are_noticed(data_dir: Path, index: int, cached: str) -> None:
    plan, _ = CASES[CPU, index]
    problems = check(_sample(data_dir, CPU, index), _log(data_dir, CPU), plan)
    (cache,) = _of(problems, ProblemKind.CACHED_TOKENS)
    assert cache.invalid
    assert cached in cache.message
    (longer,) = _of(problems, ProblemKind.INPUT_LENGTH)
    assert longer.invalid
    assert "64 were planned" in longer.message


@pytest.mark.parametrize(("name", "index"), CASES)
def test_no_stranger_is_seen_in_runs_that_had_none(data_dir: Path, name: str, index: int) -> None:
    plan, _ = CASES[name, index]
    problems = check(_sample(data_dir, name, index), _log(data_dir, name), plan)
    strange = {
        ProblemKind.STRAY_REQUESTS,
        ProblemKind.STRAY_PREFILL,
        ProblemKind.STRAY_CLIENT,
        ProblemKind.REQUESTS_MISSING,
        ProblemKind.GRAPH_OFF,
        ProblemKind.SERVER_FAULT,
        ProblemKind.WRONG_RESULT,
        ProblemKind.INCONSISTENT,
    }
    assert [p for p in problems if p.kind in strange] == []


def test_line_of_one_run_does_not_pass_for_another(data_dir: Path) -> None:
    plan = Plan(16, 80, 256, 128)
    problems = check(_sample(data_dir, STALLS, 1), _log(data_dir, STALLS), plan)
    assert _of(problems, ProblemKind.WRONG_RESULT)
    assert _of(problems, ProblemKind.INCOMPLETE)


def test_runs_of_the_client_are_told_apart_in_a_whole_log(data_dir: Path) -> None:
    runs = client_runs(_log(data_dir, STALLS))
    assert [max((d.running for d in run.decode), default=0) for run in runs] == [64, 1, 16, 64, 64]
