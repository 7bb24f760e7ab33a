"""Whether the batch at hand decodes: seen where SGLang's attention backend is called, which knows its forward mode.

Its prefill can call the same function as its decode: always on sm_120 (deepseek_v4_backend.py:2927 in 0.5.23; in
0.5.15.post1 without SGLANG_OPT_FLASHMLA_SPARSE_PREFILL), outside any graph. That is no decode that lost its graph.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def decodes(mode: Any) -> bool:
    """True for an ``sglang.srt.model_executor.forward_batch_info.ForwardMode`` of a batch in which a token is decoded.

    A mixed batch decodes beside its prefill; an idle rank of data-parallel attention computes nothing.
    """
    return not mode.is_idle() and (mode.is_mixed() or not mode.is_extend_without_speculative())


def watch(decoding_nothing: Callable[[], AbstractContextManager[None]], names: tuple[str, ...]) -> Callable[..., Any]:
    """An AROUND hook for ``DeepseekV4AttnBackend.forward``, whose parameters are ``names``: calls it unchanged, inside
    ``decoding_nothing()`` where its batch decodes nothing."""
    position = names.index("forward_batch")

    def forward(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        batch = kwargs["forward_batch"] if "forward_batch" in kwargs else args[position]
        if decodes(batch.forward_mode):
            return original(*args, **kwargs)
        with decoding_nothing():
            return original(*args, **kwargs)

    return forward
