"""What the recipes together measure: long contexts too, and the sizes between those that are captured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfgate import capacity, physics, preflight
from perfgate.recipe import Recipe, load
from perfgate.result import CheckResult, Outcome, PointResult, SampleRow

ROOT = Path(__file__).parents[2]
LOG = (ROOT / "tests" / "data" / "h200_v4mini_silent_stalls.server.log").read_text()
GATED = ("v4mini-patched", "v4-flash-fp8-tp4-h200", "v4-flash-nvfp4-tp8-rtxpro6000")
COMPRESSED_BEFORE_TOPK = 2048
"""Tokens that 512 entries of a cache compressed 4:1 cover: up to there nothing is chosen from."""


def recipe(name: str) -> Recipe:
    return load(ROOT / "recipes" / f"{name}.toml")


@pytest.mark.field_case("R14")
@pytest.mark.parametrize("name", GATED)
def test_every_gated_server_has_a_recipe_of_long_prompts_that_differs_in_nothing_else(name: str) -> None:
    short, long = recipe(name), recipe(f"{name}-long")
    assert long.workload.input_len >= 8 * COMPRESSED_BEFORE_TOPK
    assert long.points
    assert (long.model, long.patch, long.server.env) == (short.model, short.patch, short.server.env)
    different = {
        k for k in {*long.server.args, *short.server.args} if long.server.args.get(k) != short.server.args.get(k)
    }
    assert different <= {"context_length"}
    assert long.server.args["context_length"] >= long.workload.input_len + long.workload.output_len


@pytest.mark.field_case("R12")
def test_a_recipe_measures_batch_sizes_between_the_captured_ones_and_a_prompt_past_a_page() -> None:
    gaps = recipe("v4mini-patched-gaps")
    captured = capacity.graph_sizes({}, LOG)
    assert captured  # of a server that this recipe's arguments start
    assert {c for c in gaps.concurrencies if c not in captured} == {17, 33}
    assert gaps.workload.input_len % 256 == 1
    facts = preflight.ServerFacts(graph_batch_sizes=captured)
    said = {
        p.concurrency: p.findings[0].why for p in preflight.predict(facts, [gaps.plan(c) for c in gaps.concurrencies])
    }
    assert re.search(r"padded by 7 rows to the graph of 24", said[17])
    assert re.search(r"padded by 7 rows to the graph of 40", said[33])
    assert "padded" not in said[16]


def point(concurrency: int, step_ms: float) -> PointResult:
    rate = 0.8 * 1000 * concurrency / step_ms
    rows = [
        SampleRow(index=i, asked=5, throughput=rate * wobble, step_ms=step_ms / wobble, counted=True)
        for i, wobble in enumerate((0.999, 1.0, 1.001))
    ]
    return PointResult(concurrency=concurrency, outcome=Outcome.PASS, why="", samples=rows)


def laws(steps: dict[int, float]) -> list[CheckResult]:
    checked = physics.check(recipe("v4mini-patched-gaps"), [point(c, ms) for c, ms in steps.items()])
    return [check for check in checked if not check.outcome.passes]


@pytest.mark.field_case("R12")
def test_a_size_that_is_padded_threefold_breaks_the_laws_of_the_sweep() -> None:
    steps = {1: 2.0, 16: 2.5, 17: 2.53, 33: 3.05, 64: 4.1}
    assert laws(steps) == []
    broken = laws({**steps, 17: 3 * steps[17]})
    assert any("C=33" in check.name and "falls" in check.why for check in broken)


def test_the_recipe_that_is_to_lose_c64_asks_for_memory_there_that_nothing_before_it_does() -> None:
    made_to_fail = recipe("v4mini-missing-c64")
    args, work = made_to_fail.server.args, made_to_fail.workload
    step = {c: min(c * work.input_len, int(str(args["chunked_prefill_size"]))) for c in made_to_fail.concurrencies}
    assert step[64] >= 4 * step[16]
    assert max(made_to_fail.warmup.prompt_lengths) <= step[16]
    assert max(made_to_fail.warmup.burst_sizes) <= 16
    assert 16 <= int(str(args["cuda_graph_max_bs_decode"])) < 64
    # What is captured scores the whole context: at 1M, 32 rows of the torch indexer take 9 GiB, more than is left.
    rows, compressed = int(str(args["cuda_graph_max_bs_decode"])), int(str(args["context_length"])) // 4
    captured = rows * compressed * (132 + 4 * 128 + 2 * 4 * 64)
    assert captured < 0.5 * (1 - float(str(args["mem_fraction_static"]))) * 139 * 2**30
