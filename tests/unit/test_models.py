"""Generated models are the same bytes each time, and appear whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from perfgate import models
from perfgate.recipe import load


def digest(folder: Path) -> str:
    sums = [f"{p.name} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in sorted(folder.iterdir())]
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()


def test_the_same_options_give_the_same_bytes(tmp_path: Path) -> None:
    first = models.ensure("tiny-llama", {}, tmp_path / "a")
    second = models.ensure("tiny-llama", {}, tmp_path / "b")
    assert digest(first) == digest(second)


def test_the_vocabulary_is_large_enough_to_keep_random_prompts_apart(tmp_path: Path) -> None:
    import json

    folder = models.ensure("tiny-llama", {}, tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    assert len(tokenizer["model"]["vocab"]) >= 32768
    assert json.loads((folder / "config.json").read_text())["vocab_size"] == len(tokenizer["model"]["vocab"])


def test_other_options_make_another_model(tmp_path: Path) -> None:
    assert models.ensure("tiny-llama", {"hidden": 128}, tmp_path) != models.ensure("tiny-llama", {}, tmp_path)


def test_an_unknown_option_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(models.ModelError, match="hiden"):
        models.ensure("tiny-llama", {"hiden": 1}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_generator_is_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(models.ModelError, match="tiny-llama"):
        models.ensure("huge", {}, tmp_path)


RECIPES = [load(path) for path in sorted((Path(__file__).parents[2] / "recipes").glob("*.toml"))]


GENERATED = sorted({(r.model.generator, *sorted(r.model.options.items())) for r in RECIPES if r.model.generator})


@pytest.mark.parametrize("options", GENERATED)
def test_every_recipes_generated_model_is_made(tmp_path: Path, options: tuple) -> None:
    folder = models.ensure(options[0], dict(options[1:]), tmp_path)
    assert {"config.json", "tokenizer.json", "tokenizer_config.json"} <= {p.name for p in folder.iterdir()}


def test_an_option_out_of_range_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(models.ModelError, match="layers must be"):
        models.ensure("v4mini", {"layers": 1}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_seed_gives_weights_that_are_the_same_each_time_and_others_for_another(tmp_path: Path) -> None:
    first, second, other = (
        models.ensure("tiny-llama", {"seed": seed}, tmp_path / name) for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert digest(first) == digest(second) != digest(other)
    assert (first / "model.safetensors").is_file()
    assert not (models.ensure("tiny-llama", {}, tmp_path) / "model.safetensors").exists()
