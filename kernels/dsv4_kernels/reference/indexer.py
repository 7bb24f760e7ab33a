"""Oracles of the indexer logits in plain torch, written for reading and chunked over tokens.

The bytes of a page, stated once: 64 tokens x 128 fp8 e4m3 values, token after token, then 64 fp32 scales (8,448 bytes).
"""

from __future__ import annotations

import torch

PAGE, HEAD_DIM = 64, 128
CHUNK = 4096


def read_tokens(kv_cache: torch.Tensor, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the unscaled keys [n*64, 128] and the scales [n*64], both float32, of page numbers `pages` [n]."""
    raw = kv_cache.view(torch.uint8)[pages.long()].reshape(len(pages), PAGE * (HEAD_DIM + 4))
    keys = raw[:, : PAGE * HEAD_DIM].contiguous().view(torch.float8_e4m3fn).float()
    scales = raw[:, PAGE * HEAD_DIM :].contiguous().view(torch.float32)
    return keys.reshape(-1, HEAD_DIM), scales.reshape(-1)


def _each_chunk(q, kv_cache, weights, seq_lens, page_table, max_seq_len, clean_logits, score):
    rows = q.shape[0]
    lengths = seq_lens.reshape(rows).tolist()
    logits = torch.full((rows, max_seq_len), float("-inf") if clean_logits else float("nan"), device=q.device)
    for row in range(rows):
        length = min(max(lengths[row], 0), max_seq_len, page_table.shape[1] * PAGE)
        for start in range(0, length, CHUNK):
            stop = min(start + CHUNK, length)
            keys, scales = read_tokens(kv_cache, page_table[row, start // PAGE : (stop + PAGE - 1) // PAGE])
            count = stop - start
            logits[row, start:stop] = score(q[row, 0].float(), keys[:count], scales[:count], weights[row])
    return logits


def paged_mqa_logits(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    seq_lens: torch.Tensor,
    page_table: torch.Tensor,
    max_seq_len: int,
    clean_logits: bool = False,
) -> torch.Tensor:
    """The fp32 oracle, with the arguments and result of `dsv4_kernels.paged_mqa_logits`: dequantise, then score.

    What the kernel leaves unspecified (t at or past the row's length, without clean_logits) is NaN here.
    """

    def score(q, keys, scales, weights):
        dequantised = keys * scales[:, None]
        return torch.relu(dequantised @ q.T) @ weights

    return _each_chunk(q, kv_cache, weights, seq_lens, page_table, max_seq_len, clean_logits, score)


def paged_mqa_logits_rounded(
    q: torch.Tensor,
    kv_cache: torch.Tensor,
    weights: torch.Tensor,
    seq_lens: torch.Tensor,
    page_table: torch.Tensor,
    max_seq_len: int,
    clean_logits: bool = False,
) -> torch.Tensor:
    """The oracle that rounds where the kernel rounds: fp8 products summed in fp32, heads weighted, the scale last.

    An fp8 product is exact in fp32, so the sums' order is all that is left to differ (and, on Hopper, that its tensor
    cores keep 14 bits of an fp8 sum's alignment).
    """

    def score(q, keys, scales, weights):
        return (torch.relu(keys @ q.T) * weights).sum(-1) * scales

    return _each_chunk(q, kv_cache, weights, seq_lens, page_table, max_seq_len, clean_logits, score)
