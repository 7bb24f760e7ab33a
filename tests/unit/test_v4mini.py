"""The small model: the same bytes each time, a tokenizer that keeps ids, a configuration that SGLang accepts."""

from __future__ import annotations

import hashlib
import json

import pytest

from perfgate.models import v4mini

HASHES = {
    "config.json": "b95bc0bac10ee04b",
    "generation_config.json": "5808616a565a24f3",
    "tokenizer.json": "23f9b9f3f387578f",
    "tokenizer_config.json": "e11196473e66b728",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v4mini")
    v4mini.generate(folder)
    return folder


def test_the_files_have_the_same_bytes_each_time(model):
    """A changed hash means that stored baselines are of another model: raise VERSION with it."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in sorted(model.iterdir())}
    assert found == HASHES
    assert v4mini.VERSION == 1


def test_every_layer_kind_is_there_in_the_published_order():
    assert v4mini.compress_ratios(6) == (0, 0, 4, 128, 4, 128)
    full = v4mini.compress_ratios(43)
    assert (full.count(0), full.count(4), full.count(128)) == (2, 21, 20)


@pytest.mark.parametrize("layers", [2, 44])
def test_a_number_of_layers_that_is_no_such_model_is_refused(tmp_path, layers):
    with pytest.raises(ValueError, match=f"got {layers}"):
        v4mini.generate(tmp_path, layers)


def test_the_configuration_is_one_of_deepseek_v4s(model):
    config = json.loads((model / "config.json").read_text())
    assert config["head_dim"] == config["qk_nope_head_dim"] + config["qk_rope_head_dim"] == config["v_head_dim"]
    assert len(config["compress_ratios"]) == config["num_hidden_layers"] == 6
    assert config["rope_scaling"]["factor"] * config["rope_scaling"]["original_max_position_embeddings"] == 1_048_576


def test_sglang_reads_every_key_that_its_configuration_class_names(model):
    """The class in the installed SGLang, read as source: a key that it names and we lack would take its default."""
    import ast

    from dsv4_kernels.sglang_plugin.resolve import installed_source

    source = installed_source("sglang.srt.configs.deepseek_v4")
    assert source is not None
    (cls,) = (n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "DeepSeekV4Config")
    named = {n.target.id for n in cls.body if isinstance(n, ast.AnnAssign)}
    config = json.loads((model / "config.json").read_text())
    assert named - config.keys() == {"ep_size", "initializer_range", "use_cache"}


@pytest.mark.timeout(120)
def test_the_tokenizer_gives_back_the_ids_that_a_text_was_made_of(model):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    assert len(tokenizer) == v4mini.VOCABULARY
    ids = [3, 10, 17, 100, 129_279, 64_000]
    assert tokenizer.encode(tokenizer.decode(ids)) == ids
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1)
