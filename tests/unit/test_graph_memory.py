"""The memory that captured graphs take is read, bounded, kept with the baseline, and its growth is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import samples

from perfgate import capacity, checks, gate, preflight
from perfgate.baseline import record
from perfgate.baseline.file import load
from perfgate.recipe import Recipe
from perfgate.recipe import load as load_recipe
from perfgate.result import Outcome

ROOT = Path(__file__).parents[2]
LOG = (ROOT / "tests" / "data" / "h200_v4mini_silent_stalls.server.log").read_text()
GIB = 2**30


def facts(gib: float | None) -> checks.ServerFacts:
    used = None if gib is None else int(gib * GIB)
    return checks.ServerFacts(capacity=preflight.ServerFacts(graph_bytes=used))


def recipe(most: float | None = None) -> Recipe:
    loaded = load_recipe(ROOT / "recipes" / "v4mini-patched.toml")
    return loaded.model_copy(update={"limits": loaded.limits.model_copy(update={"max_graph_gib": most})})


def test_a_point_above_the_captured_sizes_names_the_recipes_key_that_captures_more() -> None:
    captured = checks.ServerFacts(capacity=preflight.ServerFacts(graph_batch_sizes=(1, 8, 32)))
    found = checks.graph_coverage(recipe(), captured, 64)
    assert found.outcome is Outcome.INVALID
    assert "raise cuda_graph_max_bs_decode to 64" in found.why
    assert "cuda_graph_max_bs_decode" in recipe().server.args


def test_what_a_real_capture_took_is_read_from_its_log() -> None:
    assert capacity.graph_bytes(LOG) == int(0.26 * GIB)
    assert capacity.read({}, LOG, recipe()).graph_bytes == int(0.26 * GIB)
    assert capacity.graph_bytes("") is None


def test_kinds_of_graphs_add_up_and_the_rank_with_most_counts() -> None:
    lines = [
        "[2026-11-29 17:18:54 TP0] Capture target decode CUDA graph end. elapsed=11.34 s, mem usage=0.50 GB, avail mem=52.13 GB.",
        "[2026-11-29 17:18:55 TP0] Capture draft CUDA graph end. elapsed=1.34 s, mem usage=0.25 GB, avail mem=51.88 GB.",
        "[2026-11-29 17:18:54 TP1] Capture target decode CUDA graph end. elapsed=11.34 s, mem usage=0.60 GB, avail mem=52.13 GB.",
        "[2026-11-29 17:18:54 TP1] Capture cuda graph end. Time elapsed: 9.01 s. mem usage=0.05 GB. avail mem=52.13 GB.",
    ]
    assert capacity.graph_bytes("\n".join(lines)) == int(0.75 * GIB)


@pytest.mark.field_case("R17")
def test_graphs_that_take_more_than_the_recipe_allows_fail_the_run_and_the_figure_is_shown() -> None:
    assert checks.graph_memory(recipe(0.3), facts(0.26)).outcome is Outcome.PASS
    failed = checks.graph_memory(recipe(0.3), facts(1.1))
    assert (failed.outcome, failed.value, failed.bound) == (Outcome.REGRESSION, 1.1, 0.3)
    assert "max_graph_gib" in failed.why


def test_without_a_bound_the_figure_is_followed_and_with_one_it_must_be_known() -> None:
    assert checks.graph_memory(recipe(), facts(1.1)).outcome is Outcome.PASS
    assert checks.graph_memory(recipe(), facts(1.1)).value == 1.1
    assert checks.graph_memory(recipe(0.3), facts(None)).outcome is Outcome.MISSING


@pytest.mark.field_case("R17")
@pytest.mark.parametrize(("now", "said"), [(0.26, False), (0.30, False), (0.35, False), (0.40, True), (1.1, True)])
def test_graphs_that_grew_since_the_baseline_are_noted(tmp_path: Path, now: float, said: bool) -> None:
    path = tmp_path / "b.json"
    record(
        path,
        recipe="r",
        hardware="h",
        points={16: samples([1000.0, 1001.0])},
        fingerprint={},
        recorded_at="2026-11-29",
        graph_gib=0.26,
    )
    notes = gate.graphs_grew(load(path), facts(now))
    assert bool(notes) is said
    assert all("0.26 GiB when the baseline was recorded" in note for note in notes)


def test_a_baseline_without_graphs_says_nothing(tmp_path: Path) -> None:
    assert gate.graphs_grew(None, facts(1.1)) == []
    path = tmp_path / "b.json"
    record(path, recipe="r", hardware="h", points={16: samples([1.0, 1.0])}, fingerprint={}, recorded_at="2026-11-29")
    assert gate.graphs_grew(load(path), facts(1.1)) == []
    assert gate.graphs_grew(load(path), None) == []
