"""Environment variables that decide a server's speed are recorded, and a fallback that nobody declared never passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import checks, environment, fingerprint, preflight
from perfgate.recipe import load
from perfgate.result import Outcome
from perfgate.server.command import environment as server_environment

RECIPES = Path(__file__).parents[2] / "recipes"
STOCK = load(RECIPES / "v4mini-stock.toml")
TORCH_INDEXER = {"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "1"}


def verdict(name: str, environ: dict[str, str]) -> checks.CheckResult:
    facts = checks.ServerFacts(environ=environ, capacity=preflight.ServerFacts())
    return checks.surroundings(load(RECIPES / f"{name}.toml"), facts)


@pytest.mark.field_case("R15")
@pytest.mark.parametrize(
    ("name", "environ"),
    [
        ("v4mini-stock", TORCH_INDEXER),
        ("v4mini-stock", {"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "true"}),
        ("v4mini-stock", {"SGLANG_SM120_FLASHMLA_BACKEND": "torch"}),
        ("v4mini-fallback", {"SGLANG_TOPK_TRANSFORM_512_TORCH": "1"}),
        ("v4mini-patched", {"CUDA_LAUNCH_BLOCKING": "1"}),
        ("cpu-tiny", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    ],
)
def test_a_fallback_that_the_recipe_does_not_declare_makes_the_run_invalid(name: str, environ: dict[str, str]) -> None:
    found = verdict(name, environ)
    assert found.outcome is Outcome.INVALID
    assert next(iter(environ)) in found.why


@pytest.mark.parametrize("name", ["v4mini-fallback", "v4mini-patched"])
def test_a_fallback_that_is_declared_or_patched_over_is_what_was_asked_for(name: str) -> None:
    assert verdict(name, TORCH_INDEXER).outcome is Outcome.PASS


@pytest.mark.parametrize("value", ["", "0", "false", "False", "no"])
def test_a_switch_that_is_off_is_no_fallback(value: str) -> None:
    assert verdict("v4mini-stock", {"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": value}).outcome is Outcome.PASS


def test_the_flashmla_backend_that_is_the_default_is_no_fallback() -> None:
    assert verdict("v4mini-stock", {"SGLANG_SM120_FLASHMLA_BACKEND": "flashinfer"}).outcome is Outcome.PASS


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_no_recipe_of_the_repository_starts_a_server_past_its_own_kernels(path: Path) -> None:
    recipe = load(path)
    assert environment.spoilt(recipe, server_environment(recipe, {}, "id")) == []


def test_a_server_that_already_ran_is_said_to_be_unseen() -> None:
    found = checks.surroundings(STOCK, checks.ServerFacts(owned=False))
    assert (found.outcome, "not visible" in found.why) == (Outcome.PASS, True)


@pytest.mark.field_case("R15")
def test_the_environment_is_part_of_what_makes_two_results_comparable() -> None:
    fast, slow = ({"SGLANG_OPT_USE_TOPK_V2": value} for value in ("1", "0"))
    one, other = (fingerprint.collect({}, environ=e)["environment"] for e in (fast, slow))
    assert one != other
    assert one == {"SGLANG_OPT_USE_TOPK_V2": "1"}


def test_neither_secrets_nor_paths_nor_what_says_nothing_about_speed_are_recorded() -> None:
    kept = environment.relevant(
        {
            "SGLANG_API_KEY": "sk-0123456789abcdef",
            "TRITON_CACHE_DIR": "/home/somebody/.triton",
            "CUDA_VISIBLE_DEVICES": "3",
            "HOME": "/home/somebody",
            "OMP_NUM_THREADS": "1",
            "NCCL_ALGO": "Ring",
            "DSV4_PATCHES": "",
        }
    )
    assert set(kept) <= {"SGLANG_API_KEY", "OMP_NUM_THREADS", "NCCL_ALGO"}
    assert "sk-0123456789abcdef" not in kept.values()
    assert kept["NCCL_ALGO"] == "Ring"
