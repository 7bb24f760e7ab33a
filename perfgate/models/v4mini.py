"""DeepSeek-V4-Flash with its real per-layer shapes and few layers: a configuration and a tokenizer, no weights.

``--load-format dummy`` invents the weights. Shapes are those of the published model (43 layers, hidden 4096, 64 heads
of 512, 256 experts), so that a decode step launches what the real one launches, only fewer times.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VERSION = 1
VOCABULARY = 129_280
MAX_CONTEXT = 1_048_576
FULL_LAYERS = 43
SPECIAL_WORDS = ("<bos>", "<eos>", "<unk>")


def generate(folder: Path, layers: int = 6) -> None:
    """Write ``config.json`` and the tokenizer into ``folder``: the same bytes for the same number of layers.

    Raises ValueError unless there are 3 to 43 layers: fewer lack a layer of each kind. Raises OSError.
    """
    if not 3 <= layers <= FULL_LAYERS:
        raise ValueError(f"layers must be 3 to {FULL_LAYERS} (one of each kind to the whole model), got {layers}")
    files = {
        "config.json": _text(configuration(layers)),
        "generation_config.json": _text({"bos_token_id": 0, "do_sample": False, "eos_token_id": 1}),
        "tokenizer.json": json.dumps(_tokenizer(), separators=(",", ":"), ensure_ascii=True) + "\n",
        "tokenizer_config.json": _text(
            {
                "bos_token": SPECIAL_WORDS[0],
                "clean_up_tokenization_spaces": False,
                "eos_token": SPECIAL_WORDS[1],
                "model_max_length": MAX_CONTEXT,
                "tokenizer_class": "PreTrainedTokenizerFast",
                "unk_token": SPECIAL_WORDS[2],
            }
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def compress_ratios(layers: int) -> tuple[int, ...]:
    """KV compression of each layer: none in the first two (sliding window alone), then 4 and 128 in turn."""
    return tuple(0 if layer < 2 else 4 if layer % 2 == 0 else 128 for layer in range(layers))


def configuration(layers: int) -> dict[str, Any]:
    """The model's ``config.json``: the keys that SGLang reads (srt/configs/deepseek_v4.py, models/deepseek_v4.py)."""
    return {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "num_hidden_layers": layers,
        "num_nextn_predict_layers": 0,
        "hidden_size": 4096,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attention_dropout": 0.0,
        # attention
        "num_attention_heads": 64,
        "num_key_value_heads": 1,
        "head_dim": 512,
        "qk_nope_head_dim": 448,
        "qk_rope_head_dim": 64,
        "v_head_dim": 512,
        "q_lora_rank": 1024,
        "kv_lora_rank": 512,
        "o_lora_rank": 1024,
        "o_groups": 8,
        "window_size": 128,
        "sliding_window": 128,
        "compress_ratios": list(compress_ratios(layers)),
        # indexer of the layers that compress 4:1
        "index_n_heads": 64,
        "index_head_dim": 128,
        "index_topk": 512,
        # experts
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 6,
        "intermediate_size": 2048,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "first_k_dense_replace": 0,
        "n_group": 8,
        "topk_group": 8,
        "topk_method": "noaux_tc",
        "scoring_func": "sqrtsoftplus",
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "n_hash_layers": 3,
        "num_hash_layers": 3,
        "swiglu_limit": 10.0,
        # hyper-connections
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
        # positions
        "max_position_embeddings": MAX_CONTEXT,
        "rope_theta": 10000,
        "compress_rope_theta": 160000,
        "rope_scaling": {
            "type": "yarn",
            "factor": 16,
            "original_max_position_embeddings": 65536,
            "beta_fast": 32,
            "beta_slow": 1,
        },
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "fmt": "e4m3",
            "scale_fmt": "ue8m0",
            "weight_block_size": [128, 128],
        },
    }


def _tokenizer() -> dict[str, Any]:
    """A word-level tokenizer in the ``tokenizers`` library's own format, one word a token, split at white space.

    The special words are spelt unlike the rest: a special "t1" would be cut out of "t10" before words are looked up.
    """
    words = [*SPECIAL_WORDS, *(f"t{token}" for token in range(len(SPECIAL_WORDS), VOCABULARY))]
    special = [
        {
            "id": token,
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token, word in enumerate(SPECIAL_WORDS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: token for token, word in enumerate(words)},
            "unk_token": SPECIAL_WORDS[2],
        },
    }


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1) + "\n"
