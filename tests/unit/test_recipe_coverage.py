"""What the recipes together measure: long contexts too, and the sizes between those that are captured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfgate import capacity, physics, preflight
from perfgate.models import v4mini
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


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("v4*.toml")), ids=lambda p: p.stem)
def test_every_recipe_of_a_mixture_of_experts_says_so(path: Path) -> None:
    model = v4mini.configuration(6)
    assert load(path).bounds.experts == (model["n_routed_experts"], model["num_experts_per_tok"])


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


GIB = 2**30
LOADED_GIB, BEFORE_GIB = 99.05, 139.07
"""GPU memory free on an H200 with the six layers loaded, and before."""
POOL, BESIDE, INPUTS = 845.53, 13.4, 48
"""Bytes that SGLang 0.5.15 takes for a token of the pool, beside the pool, and for the eager step's inputs after it."""
CAPTURED_GIB = 0.9
"""Graphs up to 32 at 64K: of 1.53 GiB up to 64, 1.13 are the torch indexer's, 1,156 bytes for each row and compressed token."""
FIRST_LAYER, AT_MOST = 160 << 10, 230 << 10
"""Bytes of a prefilled token: hc_pre's streams in bf16, in fp32 and squared; the indexer's with the layer's input and query."""


def test_the_recipe_that_is_to_lose_c64_leaves_room_for_the_prefill_of_c16_and_not_for_that_of_c64() -> None:
    made_to_fail = recipe("v4mini-missing-c64")
    prompt = made_to_fail.workload.input_len
    left = BEFORE_GIB * (1 - float(str(made_to_fail.server.args["mem_fraction_static"])))
    tokens = (LOADED_GIB - left - 0.07) * GIB / POOL
    free = left - 0.16 - (BESIDE + INPUTS) * tokens / GIB - CAPTURED_GIB
    assert 1.5 * 16 * prompt * AT_MOST / GIB < free
    assert 1.25 * free < 63 * prompt * FIRST_LAYER / GIB


def test_the_recipe_that_is_to_lose_c64_gathers_the_prompts_that_come_while_the_first_is_answered() -> None:
    made_to_fail = recipe("v4mini-missing-c64")
    args, env, work = made_to_fail.server.args, made_to_fail.server.env, made_to_fail.workload
    interval = int(str(args.get("scheduler_recv_interval", 1)))
    weight = {
        name: int(env.get(f"SGLANG_SCHEDULER_RECV_SKIPPER_WEIGHT_{name}", default))
        for name, default in (("DEFAULT", "1000"), ("DECODE", "1"), ("NONE", "1"))
    }
    step_ms, arrivals_ms = 3.16, 220  # of v4mini-fallback at C=1, and of 64 requests at C=64
    assert interval * step_ms > 1.25 * arrivals_ms
    assert interval < work.output_len  # or the first is gone before the others are taken in
    assert (weight["DEFAULT"], weight["DECODE"]) == (1, 1)
    assert weight["NONE"] >= interval
    assert 63 * work.input_len <= int(str(args["chunked_prefill_size"]))
