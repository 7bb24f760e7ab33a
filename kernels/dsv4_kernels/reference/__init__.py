"""Oracles in plain torch, written for reading; each kernel has a twin of the same name and signature here.

Each module also holds a second oracle that rounds where its kernel rounds.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "sparse_mla_decode": "sparse_mla",
    "sparse_mla_decode_rounded": "sparse_mla",
    "paged_mqa_logits": "indexer",
    "topk_transform": "topk",
    "hc_prenorm": "hyper_connection",
}

__all__ = ["hc_prenorm", "paged_mqa_logits", "sparse_mla_decode", "sparse_mla_decode_rounded", "topk_transform"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
