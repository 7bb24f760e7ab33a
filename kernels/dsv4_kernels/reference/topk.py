"""Oracle of the top-k transform in plain torch, one row at a time."""

from __future__ import annotations

import torch


def select_row(scores: torch.Tensor, topk: int) -> torch.Tensor:
    """Return the indices of a row's topk largest scores [min(n, topk)] int64.

    A row no longer than topk keeps its order; a longer one comes by falling score, equal scores by rising index.
    -0 equals +0; NaN ranks below -inf.
    """
    if len(scores) <= topk:
        return torch.arange(len(scores), device=scores.device)
    numbers = torch.nonzero(~scores.isnan())[:, 0]
    by_score = numbers[torch.sort(scores[numbers], descending=True, stable=True).indices]
    return torch.cat([by_score, torch.nonzero(scores.isnan())[:, 0]])[:topk]


def topk_transform(
    scores: torch.Tensor,
    seq_lens: torch.Tensor,
    page_table: torch.Tensor,
    page_size: int,
    topk: int = 512,
) -> torch.Tensor:
    """The oracle, with the arguments and result of `dsv4_kernels.topk_transform`; long rows come by falling score."""
    out = torch.full((scores.shape[0], topk), -1, dtype=torch.int32, device=scores.device)
    for row, length in enumerate(seq_lens.tolist()):
        length = min(max(length, 0), scores.shape[1], page_table.shape[1] * page_size)
        index = select_row(scores[row, :length], topk)
        cache_index = page_table[row, index // page_size].long() * page_size + index % page_size
        out[row, : len(index)] = cache_index.to(torch.int32)
    return out
