"""Capacity as SGLang 0.5.15 tells it on a GPU: from real answers and logs of an H200."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfgate import capacity, recipe

ROOT = Path(__file__).parents[2]
GPU = recipe.load(ROOT / "recipes" / "v4mini-patched.toml")
CPU = recipe.load(ROOT / "recipes" / "cpu-tiny.toml")
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)
LOG = (ROOT / "tests" / "data" / "h200_v4mini_silent_stalls.server.log").read_text(errors="replace")


def info(name: str = "h200_v4mini_silent_stalls.jsonl") -> dict:
    for line in (ROOT / "tests" / "data" / name).read_text().splitlines():
        if found := json.loads(line).get("server_info"):
            return found
    raise AssertionError(name)


def test_a_gpu_servers_graphs_pool_and_free_memory_are_known() -> None:
    facts = capacity.read(info(), LOG, GPU)
    assert facts.graph_batch_sizes == SIZES
    assert facts.max_total_tokens == 55_027_200
    assert facts.max_running_requests == 64
    assert facts.free_bytes == int(52.13 * 2**30)


def test_sizes_that_were_captured_go_before_those_that_were_asked_for() -> None:
    log = LOG.replace("bs=[1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64], avail", "bs=[1, 2, 4, 8], avail")
    assert log != LOG
    assert capacity.graph_sizes(info(), log) == (1, 2, 4, 8)
    assert capacity.graph_sizes(info(), "") == SIZES
    assert capacity.graph_sizes({"internal_states": [{"decode_cuda_graph_bs": [4, 2]}]}, LOG) == (2, 4)


@pytest.mark.parametrize("change", [{"disable_cuda_graph": True}, {"disable_decode_cuda_graph": True}])
def test_graphs_that_are_off_are_not_taken_from_the_arguments(change: dict) -> None:
    asked = {k: v for k, v in info().items() if k != "internal_states"}
    assert capacity.graph_sizes(asked | change, "") == ()
    off = {"cuda_graph_config": {"decode": {"backend": "disabled", "bs": [1, 2]}}}
    assert capacity.graph_sizes(off, "") == ()


def test_the_cpu_engine_has_no_graphs_and_says_no_gpu_memory() -> None:
    log = (ROOT / "tests" / "data" / "cpu_tiny_llama.server.log").read_text(errors="replace")
    facts = capacity.read(info("cpu_tiny_llama_c1_c16_c64.jsonl"), log, CPU)
    assert (facts.graph_batch_sizes, facts.free_bytes) == (None, None)


def test_the_rank_with_the_least_memory_left_counts() -> None:
    text = "TP0] available_gpu_mem=5.25 GB\nTP1] available_gpu_mem=3.50 GB\n"
    assert capacity.free_bytes(text) == int(3.5 * 2**30)


def test_ranks_are_processes_that_run_the_model() -> None:
    assert capacity.ranks({}) == 1
    assert capacity.ranks({"tp_size": 2, "pp_size": 2}) == 4
    assert capacity.ranks({"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}) == 4
