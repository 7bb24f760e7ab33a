"""Kernels that are wrong on purpose, so that a gate can be seen to catch one (DSV4_BROKEN names the patch)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Kernel = Callable[..., Any]


def broken(patch: str, kernel: Kernel) -> Kernel:
    """``kernel`` with a fault of the kind that passes unseen: right shapes, plausible numbers.

    Decode: values a quarter too large, as a scale misread. Indexer: scores negated, so that the worst rows are chosen.
    Top-k: every row takes the first row's choice. Pre-norm: mixes a quarter too large.
    """

    def sparse_mla(*args: Any) -> Any:
        out, lse = kernel(*args)
        return out * 1.25, lse

    def indexer(*args: Any) -> Any:
        return -kernel(*args)

    def topk(scores: Any, *args: Any, out: Any, out_raw_indices: Any = None) -> Any:
        kernel(scores, *args, out=out, out_raw_indices=out_raw_indices)
        return out.copy_(out[:1].expand_as(out).clone())

    def hc_prenorm(*args: Any) -> Any:
        return kernel(*args) * 1.25

    faults: dict[str, Kernel] = {"sparse_mla": sparse_mla, "indexer": indexer, "topk": topk, "hc_prenorm": hc_prenorm}
    return faults[patch]
