"""A recipe is checked before anything is started, and what is wrong with it is said with the file and the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate import recipe

RECIPES = Path(__file__).parents[2] / "recipes"
GOOD = (RECIPES / "cpu-tiny.toml").read_text()
BOUNDED = GOOD.replace("[bounds]\n", "[bounds]\nmin_speedup = 2\n")


def write(folder: Path, text: str) -> Path:
    path = folder / "r.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_recipe_in_the_repository_is_valid_and_named_after_its_file(path: Path) -> None:
    assert recipe.load(path).name == path.stem


def test_an_unknown_recipe_is_answered_with_the_names_there_are() -> None:
    with pytest.raises(recipe.RecipeError, match=r"unknown recipe 'cpu-tinny'.*cpu-tiny"):
        recipe.find("cpu-tinny", RECIPES)


def test_malformed_toml_names_the_file_and_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace('device = "cpu"\ngraphs', 'device = "cpu\ngraphs'))
    with pytest.raises(recipe.RecipeError, match=r"r\.toml: not valid TOML.*line 5"):
        recipe.load(path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("input_len = 64", "input_length = 64", "unknown key 'workload.input_length'"),
        ("input_len = 64", "input_len = 0", "key 'workload.input_len'"),
        ("input_len = 64", 'input_len = "many"', "key 'workload.input_len'"),
        ("output_len = 32", "output_len = 1", "key 'workload.output_len'"),
        ("concurrency = 16", "concurrency = 1", "a concurrency is given twice"),
        ("samples = 3", "samples = 9", "max_samples (6) is below samples (9)"),
        ("enable_metrics = true", "port = 1", "'port' is set by the harness"),
        ("enable_metrics = true", '"bad flag" = 1', "'bad flag' is not a server flag"),
        (
            'HF_HUB_OFFLINE = "1"',
            'TRITON_CACHE_DIR = "/x"',
            "TRITON_CACHE_DIR: set by the harness; list the folder in jit_c",
        ),
        ('generator = "tiny-llama"', 'generator = "tiny-llama"\npath = "x"', "exactly one of"),
        ("schema = 1", "schema = 2", "key 'schema'"),
        ("[bounds]", "[bounds]\nmax_b_ms = 1\nexperts = [256, 6]", "bounds.max_b_ms can be tested from 4 points on"),
        ("concurrency = 1\n", "concurrency = 2\n", "bounds.min_speedup is from C=1 to the largest C"),
        ("[bounds]", "[bounds]\nmax_e_ms = 1", "bounds.max_e_ms needs bounds.experts"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(recipe.RecipeError) as error:
        recipe.load(write(tmp_path, BOUNDED.replace(old, new, 1)))
    assert said in str(error.value)
    assert "r.toml" in str(error.value)


def test_a_point_gets_at_least_five_prompts_for_each_request_in_flight(tmp_path: Path) -> None:
    few = GOOD.replace("concurrency = 64", "concurrency = 64\nnum_prompts = 64")
    assert recipe.load(write(tmp_path, few)).plan(64).num_prompts == 320


@given(st.text(max_size=300))
def test_arbitrary_text_is_refused_with_the_one_error_there_is(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.toml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        with pytest.raises(recipe.RecipeError):
            recipe.load(path)


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 200))
def test_a_recipe_with_a_piece_cut_out_is_read_or_refused_never_crashes(start: int, length: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.toml"
        path.write_text(GOOD[:start] + GOOD[start + length :])
        try:
            recipe.load(path)
        except recipe.RecipeError as error:
            said = str(error)
        else:
            said = "read: r.toml"
        assert "r.toml" in said
