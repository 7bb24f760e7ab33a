"""A two-layer Llama and a word-level tokenizer: without weights (``--load-format dummy`` invents them), or with random ones.

Invented weights are the same at every start and so small that all tokens are about equally likely: good enough to time,
and of no use to tell one model's answers from another's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VERSION = 1


def generate(folder: Path, hidden: int = 64, layers: int = 2, vocab: int = 32768, seed: int | None = None) -> None:
    """Write ``config.json`` and the tokenizer into ``folder``: the same bytes for the same options.

    ``vocab`` of at least 32,768 keeps random prompts apart: the client's random-id prompts are runs of consecutive ids,
    and with a small vocabulary two of them start alike and hit the prefix cache. With a ``seed`` there are random fp32
    weights as well, which tell tokens apart (``--load-format auto``).
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": hidden // 4,
        "vocab_size": vocab,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "bfloat16",
    }
    words = {f"t{i}": i for i in range(vocab)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "t0",
        "eos_token": "t1",
        "unk_token": "t0",
        "model_max_length": 8192,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(special, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False}) + "\n")
    if seed is not None:
        _write_weights(folder, config, seed)


EMBEDDING_SD = 0.25
"""Gives logits of some two nats' spread, so that the best token leads the second by tenths."""
LAYER_GAIN = 2.0
"""Layers that add more than they find: else the best next token is always the last one, since embeddings are tied."""


def _write_weights(folder: Path, config: dict[str, Any], seed: int) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    dice = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]

    def matrix(rows: int, columns: int, sd: float) -> Any:
        return dice.normal(0.0, sd, (rows, columns)).astype(np.float32)

    ones = np.ones(hidden, dtype=np.float32)
    weights = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden, EMBEDDING_SD),
        "model.norm.weight": ones.copy(),
    }
    shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, (rows, columns) in shapes.items():
            weights[f"{at}{name}.weight"] = matrix(rows, columns, LAYER_GAIN / columns**0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = ones.copy()
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
