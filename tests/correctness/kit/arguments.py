"""What the indexer and the top-k are called with. Without hypothesis, which a benchmark of these kernels need not have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class IndexerInputs:
    """Arguments of ``paged_mqa_logits``."""

    q: torch.Tensor
    kv_cache: torch.Tensor
    weights: torch.Tensor
    seq_lens: torch.Tensor
    page_table: torch.Tensor
    max_seq_len: int

    def arguments(self) -> tuple[Any, ...]:
        return self.q, self.kv_cache, self.weights, self.seq_lens, self.page_table, self.max_seq_len

    def replace(self, **changes: Any) -> IndexerInputs:
        return replace(self, **changes)


@dataclass(frozen=True)
class TopKInputs:
    """Arguments of ``topk_transform``."""

    scores: torch.Tensor
    seq_lens: torch.Tensor
    page_table: torch.Tensor
    page_size: int
    topk: int

    def arguments(self) -> tuple[Any, ...]:
        return self.scores, self.seq_lens, self.page_table, self.page_size, self.topk

    def replace(self, **changes: Any) -> TopKInputs:
        return replace(self, **changes)
