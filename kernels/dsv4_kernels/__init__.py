"""DeepSeek-V4's sparse-MLA decode, indexer, top-k and hyper-connection kernels in Triton, with their torch references.

The kernels load on first use, so that importing this package, its layout or its references needs no Triton.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_MODULES = {
    "sparse_mla_decode": "sparse_mla",
    "paged_mqa_logits": "indexer",
    "topk_transform": "topk",
    "hc_prenorm": "hyper_connection",
}

__all__ = ["hc_prenorm", "paged_mqa_logits", "sparse_mla_decode", "topk_transform"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
