"""The run's own proof that a patched server is patched: from the recipe, the model, the server's answer and the counters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perfgate import proof, recipe
from perfgate.models import v4mini
from perfgate.server.command import environment
from perfgate.validity import ProblemKind

RECIPES = Path(__file__).parents[2] / "recipes"
INFO = {"internal_states": [{"decode_cuda_graph_bs": [1, 16, 64]}], "tp_size": 1}
FULL = {"sparse_mla": 6, "fallback_sparse_mla": 6, "indexer": 2, "fallback_indexer": 2, "topk": 2, "hc_prenorm": 12}


def load(name: str) -> recipe.Recipe:
    return recipe.load(RECIPES / f"{name}.toml")


def model(folder: Path) -> Path:
    made = folder / "model"
    made.mkdir(exist_ok=True)
    (made / "config.json").write_text(json.dumps(v4mini.configuration(6)))
    return made


def counted(folder: Path, patches: Sequence[str], pid: int = 7, eager: dict[str, int] | None = None) -> Path:
    """Counters as the plug-in writes them: each decode patch captured, prewarm called once at start."""
    calls: dict[str, Any] = {
        p: {"capturing": {"1": FULL[p], "16": FULL[p], "64": FULL[p]}, "eager_by_second": eager or {}}
        for p in patches
        if p in FULL
    }
    if "prewarm" in patches:
        calls["prewarm"] = {"eager_by_second": {"100": 1}}
    document = {"schema": 1, "pid": pid, "sglang": "0.5.15.post1", "arch": "sm_90", "calls": calls}
    (folder / f"c.{pid}").write_text(json.dumps(document | {"patches": {p: ["seam"] for p in patches}}))
    return folder / "c"


def check(folder: Path, name: str, **more: Any) -> list[str]:
    made = proof.PatchProof.of(load(name), folder / "c", model(folder), more.pop("info", INFO), "")
    found = made.check(**more)
    assert all(p.kind is ProblemKind.PATCH_NOT_PROVED and p.invalid and p.evidence for p in found)
    return [p.message.split(":")[0] for p in found]


@pytest.mark.parametrize("name", ["v4mini-patched", "v4mini-fallback", "v4mini-step1", "v4mini-step3", "v4mini-stock"])
def test_a_server_that_runs_what_its_recipe_asks_for_is_proved(tmp_path: Path, name: str) -> None:
    counted(tmp_path, proof.asked(load(name)))
    assert check(tmp_path, name, windows=[(200.0, 210.0)]) == []


@pytest.mark.parametrize("name", ["v4mini-patched", "v4mini-fallback", "v4mini-stock"])
def test_a_server_without_counters_is_invalid_at_every_patch(tmp_path: Path, name: str) -> None:
    assert check(tmp_path, name) == ["NOT_HOOKED"] * len(proof.asked(load(name)))


def test_fallback_patches_are_asked_for_by_their_full_names() -> None:
    assert set(proof.asked(load("v4mini-fallback"))) >= {"fallback_sparse_mla", "fallback_indexer"}


def test_a_recipe_without_patches_has_nothing_to_prove(tmp_path: Path) -> None:
    made = proof.PatchProof.of(load("cpu-tiny"), tmp_path / "c", None, {}, "")
    assert made.check([(0.0, 1.0)]) == []


def test_both_ranks_of_a_tp2_server_have_to_show_it(tmp_path: Path) -> None:
    recipe_ = load("v4mini-patched-tp2")
    counted(tmp_path, proof.asked(recipe_))
    both = INFO | {"tp_size": 2}
    assert check(tmp_path, "v4mini-patched-tp2", info=both) == ["NOT_HOOKED"] * len(proof.asked(recipe_))
    counted(tmp_path, proof.asked(recipe_), pid=8)
    assert check(tmp_path, "v4mini-patched-tp2", info=both) == []


def test_decode_outside_a_graph_in_a_samples_window_is_invalid(tmp_path: Path) -> None:
    counted(tmp_path, proof.asked(load("v4mini-patched")), eager={"205": 6})
    assert check(tmp_path, "v4mini-patched", windows=[(200.0, 210.0)]) == ["EAGER_IN_WINDOW"]
    assert check(tmp_path, "v4mini-patched", windows=[(300.0, 310.0)]) == []


def test_a_server_that_does_not_say_which_graphs_it_captured_is_unproved_unless_its_recipe_says_why(
    tmp_path: Path,
) -> None:
    asked = load("v4mini-patched")
    counted(tmp_path, proof.asked(asked), eager={"100": 600})
    silent = {"tp_size": 1}
    assert set(check(tmp_path, "v4mini-patched", info=silent)) == {"NOT_CAPTURED"}
    eager = asked.model_copy(update={"graphs_reason": "a study of eager decode"})
    assert proof.PatchProof.of(eager, tmp_path / "c", model(tmp_path), silent, "").check() == []


def test_a_plug_in_that_failed_in_the_log_is_invalid(tmp_path: Path) -> None:
    counted(tmp_path, proof.asked(load("v4mini-patched")))
    assert check(tmp_path, "v4mini-patched", log="[x] Failed to load plugin dsv4: no\n") == ["LOG"]


def test_an_unreadable_counters_file_is_invalid_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "c.9").write_text("{")
    assert len(check(tmp_path, "v4mini-patched")) == 1


def test_a_patch_that_is_not_required_is_only_a_warning(tmp_path: Path) -> None:
    asked = load("v4mini-patched")
    loose = asked.model_copy(update={"patch": asked.patch.model_copy(update={"required": False})})
    found = proof.PatchProof.of(loose, tmp_path / "c", model(tmp_path), INFO, "").check()
    assert found
    assert not any(p.invalid for p in found)


def test_counters_that_come_a_moment_late_are_waited_for(tmp_path: Path) -> None:
    made = proof.PatchProof.of(load("v4mini-patched"), tmp_path / "c", model(tmp_path), INFO, "")
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 0.5:
            counted(tmp_path, made.required)

    assert made.settled(sleep=sleep, clock=lambda: now[0]) == []
    assert now[0] < proof.SETTLE_SECONDS


def test_the_layers_of_speculation_are_not_counted_among_the_models() -> None:
    assert proof.compress_ratios({"compress_ratios": [0, 0, 4, 128, 4], "num_hidden_layers": 4}) == (0, 0, 4, 128)
    assert proof.compress_ratios({}) == ()


def test_the_callers_counters_file_does_not_leak_into_a_server() -> None:
    assert "DSV4_COUNTS_FILE" not in environment(load("v4mini-patched"), {"DSV4_COUNTS_FILE": "x"}, "id")
