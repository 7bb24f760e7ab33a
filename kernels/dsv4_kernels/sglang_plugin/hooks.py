"""The functions put in SGLang's place. Each takes SGLang's call, hands it to a kernel of ours and counts it.

A factory takes the kernel and ``note(patch, rows)``, so that a test can pass a reference or a recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsv4_kernels.sglang_plugin.layout import UnsupportedLayout, require, require_cache, require_decode, require_indexer

Note = Callable[[str, int], None]
Kernel = Callable[..., Any]

_DECODE_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "block_table": (None,),
    "cache_seqlens": (None,),
    "num_splits": (None,),
    "causal": (False,),
    "descale_q": (None,),
    "descale_k": (None,),
    "is_fp8_kvcache": (True,),
    "kv_format": (None,),
    "use_legacy": (True,),
}
"""Arguments of the sm_90 decode that the kernel has no counterpart for, and the only value that each may have.

``use_legacy=False`` and a ``kv_format`` are how 0.5.23 marks V4.1's interleaved cache (deepseek_v4_backend.py:1265).
"""


def sparse_decode_hook(
    kernel: Kernel, note: Note, names: tuple[str, ...], patch: str = "sparse_mla"
) -> Callable[..., Any]:
    """Replacement for ``flash_mla_with_kvcache`` and ``flash_mla_with_kvcache_sm120``.

    ``names`` are the replaced function's parameters, so that positional calls are understood too. Returns the
    kernel's (out [B, 1, H, 512] bf16, lse). Raises UnsupportedLayout on anything that is not V4's sparse decode.
    """

    def flash_mla_with_kvcache(*args: Any, **kwargs: Any) -> Any:
        call = {**dict(zip(names, args, strict=False)), **kwargs}
        for name, allowed in _DECODE_NEUTRAL.items():
            if name in call and not any(call[name] is value for value in allowed):
                require(patch, name, call[name], allowed[0])
        q, cache = call["q"], call["k_cache"]
        require_decode(patch, q, cache, call["head_dim_v"])
        if call.get("indices") is None:
            raise UnsupportedLayout(f"patch {patch} takes over sparse decode only, and this call has no indices")
        extra = call.get("extra_k_cache")
        if extra is not None:
            require_cache(patch, "extra_k_cache", extra)
        scale = call.get("softmax_scale")
        note(patch, int(q.shape[0]))
        return kernel(
            q,
            cache,
            call["indices"],
            call.get("topk_length"),
            call.get("attn_sink"),
            call["head_dim_v"],
            q.shape[-1] ** -0.5 if scale is None else scale,
            extra,
            call.get("extra_indices_in_kvcache"),
            call.get("extra_topk_length"),
        )

    return flash_mla_with_kvcache


def fallback_decode_hook(sm120_decode: Kernel, note: Note, names: tuple[str, ...]) -> Callable[..., Any]:
    """Hopper's decode routed to SGLang's sm_120 function, which takes a part of the arguments, all by keyword."""

    def kernel(q: Any, k_cache: Any, indices: Any, length: Any, sink: Any, dim: int, scale: float, *extra: Any) -> Any:
        return sm120_decode(
            q=q,
            k_cache=k_cache,
            head_dim_v=dim,
            softmax_scale=scale,
            indices=indices,
            topk_length=length,
            attn_sink=sink,
            extra_k_cache=extra[0],
            extra_indices_in_kvcache=extra[1],
            extra_topk_length=extra[2],
        )

    return sparse_decode_hook(kernel, note, names, "fallback_sparse_mla")


def indexer_hook(kernel: Kernel, note: Note) -> Callable[..., Any]:
    """Replacement for every function that scores the indexer: DeepGEMM's, the two in torch, TileLang's.

    They differ in names and agree in order (indexer.py:722; indexer.py:1093): q, cache, weights, lengths [B] or
    [B, 1], page table, a schedule that is not needed here, the maximum length, clean_logits. Returns [B, max] fp32.
    """

    def paged_mqa_logits(
        q: Any,
        kv_cache: Any,
        weights: Any,
        seq_lens: Any,
        page_table: Any,
        schedule: Any,
        max_seq_len: int,
        clean_logits: bool = False,
        indices: Any = None,
    ) -> Any:
        require_indexer("indexer", q, kv_cache)
        require("indexer", "indices", indices, None)
        note("indexer", int(q.shape[0]))
        return kernel(q, kv_cache, weights, seq_lens, page_table, max_seq_len, clean_logits)

    return paged_mqa_logits


def fallback_indexer_hook(sm120_logits: Kernel, note: Note) -> Callable[..., Any]:
    """Hopper's torch indexer routed to the sm_120 one, which takes lengths of [B, 1] (indexer.py:190; :219)."""

    def fp8_paged_mqa_logits_torch(*args: Any, **kwargs: Any) -> Any:
        q = args[0] if args else kwargs["q_fp8"]
        note("fallback_indexer", int(q.shape[0]))
        return sm120_logits(*args, **kwargs)

    return fp8_paged_mqa_logits_torch


def topk_hook(kernel: Kernel, note: Note, names: tuple[str, ...]) -> Callable[..., None]:
    """Replacement for SGLang's top-k with page-table transform, first and second version.

    Writes ``out_page_indices`` [B, k] int32 in place and, where wanted, ``out_raw_indices`` (positions in the row),
    -1 past a row's valid entries. A plan (``metadata``) is not needed. Raises UnsupportedLayout without a page table,
    as V4.1's candidate blocks call it.
    """

    def topk_transform(*args: Any, **kwargs: Any) -> None:
        call = {**dict(zip(names, args, strict=False)), **kwargs}
        scores, lengths, table = call["scores"], call["seq_lens"], call["page_tables"]
        out, page_size = call["out_page_indices"], call["page_size"]
        if table is None:
            raise UnsupportedLayout("patch topk needs a page table; a call without one is not DeepSeek-V4's")
        note("topk", int(scores.shape[0]))
        raw = call.get("out_raw_indices")
        kernel(scores, lengths, table, page_size, out.shape[1], out=out, out_raw_indices=raw)

    return topk_transform


def prewarm_hook(method: str, note: Note) -> Callable[..., None]:
    """After a dummy load: the model's own ``method``, which only a load of real weights runs. Others are left alone."""

    def after_load(model: Any, *args: Any, **kwargs: Any) -> None:
        prewarm = getattr(model, method, None)
        if prewarm is not None:
            note("prewarm", 0)
            prewarm()

    return after_load
