"""What Triton's autotuners chose: read from a server's log, and told where starts differ by it."""

import inspect
from pathlib import Path

import pytest
from triton.runtime import autotuner

from perfgate import autotuned, closing, environment, recipe
from perfgate.closing import StartRecord
from perfgate.server.command import environment as server_environment

REPOSITORY = Path(__file__).parents[2]
KERNEL = "_tiled_sparse_decode_kernel"
WIDE = "BLOCK_T: 32, num_warps: 8, num_ctas: 1, num_stages: 2, maxnreg: None"
NARROW = "BLOCK_T: 16, num_warps: 4, num_ctas: 1, num_stages: 2, maxnreg: None"


def printed(config, key="(1024, 'torch.bfloat16')", kernel=KERNEL):
    return (
        "[2026-12-01 01:18:55] Capture target decode CUDA graph begin.\n"
        f"Triton autotuning for function {kernel},\nwith key as {key},\nfinished after 0.52s,\nbest config selected: {config};\n"
    )


def test_the_choice_is_read_by_kernel_and_key():
    log = printed(NARROW) + printed(WIDE, "(2048, 'torch.bfloat16')")
    assert autotuned.choices(log) == {
        f"{KERNEL}(1024, 'torch.bfloat16')": {NARROW},
        f"{KERNEL}(2048, 'torch.bfloat16')": {WIDE},
    }
    assert autotuned.choices("Capture target decode CUDA graph end.") == {}


def test_the_former_line_is_read_too():
    log = f"Triton autotuning for function {KERNEL} finished after 0.52s; best config selected: {NARROW};\n"
    assert autotuned.choices(log) == {KERNEL: {NARROW}}


def test_this_tritons_words_are_the_ones_looked_for():
    source = inspect.getsource(autotuner.Autotuner.run)
    for words in ("Triton autotuning for function {", "with key as {", "finished after {", "best config selected: {"):
        assert words in source


def test_starts_that_chose_alike_are_no_note():
    same = autotuned.choices(printed(NARROW))
    assert autotuned.notes({"start 1": same, "start 2": same, "start 3": {}}) == []


def test_starts_that_chose_differently_are_named_with_what_each_took():
    starts = {"start 1": autotuned.choices(printed(NARROW)), "start 2": autotuned.choices(printed(WIDE))}
    (note,) = autotuned.notes(starts)
    assert f"{NARROW} in start 1; {WIDE} in start 2" in note
    assert "TRITON_CACHE_AUTOTUNING" in note


def test_ranks_of_one_start_that_chose_differently_are_named():
    (note,) = autotuned.notes({"start 1": autotuned.choices(printed(NARROW) + printed(WIDE))})
    assert f"{NARROW} in start 1" in note
    assert f"{WIDE} in start 1" in note


@pytest.mark.parametrize("side", ["", "new "])
def test_a_runs_starts_are_read_from_their_logs(tmp_path, side):
    starts = []
    for number, config in ((1, NARROW), (2, WIDE)):
        (tmp_path / f"{number}.log").write_text(printed(config))
        starts.append(StartRecord(number, tmp_path / f"{number}.log"))
    (note,) = closing.autotuners({side: [*starts, StartRecord(3, None)]})
    assert f"in {side}start 1" in note
    assert f"in {side}start 2" in note


def test_the_two_sides_of_an_ab_are_compared(tmp_path):
    for name, config in (("old", NARROW), ("new", WIDE)):
        (tmp_path / f"{name}.log").write_text(printed(config))
    sides = {f"{name} ": [StartRecord(1, tmp_path / f"{name}.log")] for name in ("old", "new")}
    (note,) = closing.autotuners(sides)
    assert f"{NARROW} in old start 1; {WIDE} in new start 1" in note


def test_every_server_is_asked_to_print_its_choices_and_is_comparable_with_one_that_was_not():
    chosen = recipe.load(REPOSITORY / "recipes" / "cpu-tiny.toml")
    given = server_environment(chosen, {}, "mark")
    assert given["TRITON_PRINT_AUTOTUNING"] == "1"
    kept = {"TRITON_CACHE_AUTOTUNING": "1", "TRITON_ALWAYS_COMPILE": "1"}
    told = environment.relevant(given | kept)
    assert {name for name in told if name.startswith("TRITON_")} == {"TRITON_ALWAYS_COMPILE"}


def test_recipes_that_serve_an_autotuned_kernel_keep_its_choice():
    """The fallback's decode is SGLang's for sm_120."""
    files = (REPOSITORY / "recipes").glob("*.toml")
    served = [r for path in files if "sparse_mla" in (r := recipe.load(path)).patch.fallback]
    assert len(served) >= 3
    assert {r.name: r.server.env.get("TRITON_CACHE_AUTOTUNING") for r in served} == {r.name: "1" for r in served}
