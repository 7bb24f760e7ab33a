"""Sparse-MLA decode in plain torch: one oracle without rounding, one that rounds where the kernel rounds.

For each query row the tokens it attends to are those of its ``indices`` that are not negative and stand before
``topk_length``, then likewise those of ``extra_indices``; a token named twice counts twice. With s = scale * q.k:

    lse = log(sum exp(s))                              natural logarithm, the sink is not in it
    out = sum exp(s) * k / (sum exp(s) + exp(sink))    keys are values; the sink is in the denominator alone

A row without tokens gives out 0 and lse -inf; so does out with a sink of +inf, its lse being unchanged. Only the bytes
of attended tokens are read: what the rest of the cache holds, NaN included, cannot matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from dsv4_kernels import layout

LN2 = math.log(2)
CHUNK = 4096  # tokens dequantised at a time: 16 MiB in fp64


def sparse_mla_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The oracle without rounding: keys in fp32, all sums in fp64.

    Arguments are those of ``dsv4_kernels.sparse_mla_decode``. Returns out [B, S, H, head_dim_v] fp32, not rounded to
    bf16 as the kernel's is, and lse [B, H, S] fp32.
    """
    return _decode(
        _exact_keys, _exact_weights, torch.float32, q, k_cache, indices, topk_length, attn_sink, head_dim_v,
        softmax_scale, extra_k_cache, extra_indices, extra_topk_length,
    )  # fmt: skip


def sparse_mla_decode_rounded(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The oracle that rounds keys and softmax weights to bf16, as tensor cores are fed, and the output to bf16.

    Weights are rounded relative to a power of two, as in the kernel: which one does not matter to a rounding, so that
    neither tiles nor splits show. The output is divided by their sum as rounded, lse is that of the exact sum. Returns
    out [B, S, H, head_dim_v] bf16 and lse [B, H, S] fp32.
    """
    return _decode(
        _bf16_keys, _bf16_weights, torch.bfloat16, q, k_cache, indices, topk_length, attn_sink, head_dim_v,
        softmax_scale, extra_k_cache, extra_indices, extra_topk_length,
    )  # fmt: skip


def _exact_keys(keys: torch.Tensor) -> torch.Tensor:
    return keys.double()


def _exact_weights(weights: torch.Tensor) -> torch.Tensor:
    return weights


def _bf16_keys(keys: torch.Tensor) -> torch.Tensor:
    return keys.bfloat16().double()


def _bf16_weights(weights: torch.Tensor) -> torch.Tensor:
    return weights.float().bfloat16().double()


def _decode(
    round_keys: Callable[[torch.Tensor], torch.Tensor],
    round_weights: Callable[[torch.Tensor], torch.Tensor],
    out_dtype: torch.dtype,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None,
    attn_sink: torch.Tensor | None,
    head_dim_v: int,
    softmax_scale: float,
    extra_k_cache: torch.Tensor | None,
    extra_indices: torch.Tensor | None,
    extra_topk_length: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    batch, queries, heads, _ = q.shape
    out = torch.zeros(batch, queries, heads, head_dim_v, dtype=out_dtype, device=q.device)
    lse = torch.full((batch, heads, queries), -torch.inf, dtype=torch.float32, device=q.device)
    for b in range(batch):
        for s in range(queries):
            parts = [(k_cache, _attended(indices[b, s], topk_length, b))]
            if extra_k_cache is not None and extra_indices is not None:
                parts.append((extra_k_cache, _attended(extra_indices[b, s], extra_topk_length, b)))
            if not any(tokens.numel() for _, tokens in parts):
                continue
            query = q[b, s].double()
            scores = torch.cat([softmax_scale * (query @ round_keys(k).T) for k in _chunks(parts)], dim=1)
            # The smallest power of two that is no less than the largest exp(score): any common factor would do.
            peak = torch.ceil(scores.amax(dim=1, keepdim=True) / LN2) * LN2
            weights = torch.exp(scores - peak)
            total = weights.sum(dim=1)
            weights = round_weights(weights)
            summed = torch.zeros(heads, head_dim_v, dtype=torch.float64, device=q.device)
            at = 0
            for k in _chunks(parts):
                summed += weights[:, at : at + len(k)] @ round_keys(k)[:, :head_dim_v]
                at += len(k)
            sink = torch.zeros_like(total) if attn_sink is None else torch.exp(attn_sink.double() - peak[:, 0])
            out[b, s] = (summed / (weights.sum(dim=1) * (1 + sink / total))[:, None]).to(out_dtype)
            lse[b, :, s] = (peak[:, 0] + torch.log(total)).float()
    return out, lse


def _attended(row: torch.Tensor, lengths: torch.Tensor | None, request: int) -> torch.Tensor:
    if lengths is not None:
        row = row[: max(0, int(lengths[request]))]
    return row[row >= 0].long()


def _chunks(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[torch.Tensor]:
    for cache, tokens in parts:
        for chunk in tokens.split(CHUNK):
            if chunk.numel():
                yield layout.unpack(cache, chunk)
