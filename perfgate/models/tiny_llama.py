"""A two-layer Llama with no weights (``--load-format dummy`` invents them) and a word-level tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

VERSION = 1


def generate(folder: Path, hidden: int = 64, layers: int = 2, vocab: int = 32768) -> None:
    """Write ``config.json`` and the tokenizer into ``folder``: the same bytes for the same options.

    ``vocab`` of at least 32,768 keeps random prompts apart: the client's random-id prompts are runs of consecutive ids,
    and with a small vocabulary two of them start alike and hit the prefix cache.
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
