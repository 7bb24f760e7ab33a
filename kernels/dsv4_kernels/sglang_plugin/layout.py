"""Refusing any layout but DeepSeek-V4's. V4.1 interleaves its cache otherwise, and would be read as noise."""

from __future__ import annotations

from typing import Any

HEAD_DIM = 512
BYTES_PER_TOKEN = 584
"""448 bytes of fp8 values, 64 bf16 rotary values, 7 ue8m0 scales and one of padding."""
INDEX_HEAD_DIM = 128
INDEX_PAGE = 64
INDEX_BYTES_PER_TOKEN = INDEX_HEAD_DIM + 4


class UnsupportedLayout(RuntimeError):
    """A call that the patch cannot take over. The server stops on it rather than decode something else."""


def require(patch: str, what: str, found: Any, expected: Any) -> None:
    """Raise UnsupportedLayout unless ``found`` equals ``expected``."""
    if found != expected:
        raise UnsupportedLayout(
            f"patch {patch} knows DeepSeek-V4's layout only: {what} is {found!r}, expected {expected!r}; "
            f"serve this model with {patch} left out of DSV4_PATCHES"
        )


def require_decode(patch: str, q: Any, cache: Any, head_dim_v: int) -> None:
    """q [B, S, H, 512]; cache [pages, page_size, 1, 584] of one byte an element."""
    require(patch, "q's head dimension", q.shape[-1], HEAD_DIM)
    require(patch, "head_dim_v", head_dim_v, HEAD_DIM)
    require_cache(patch, "k_cache", cache)


def require_cache(patch: str, name: str, cache: Any) -> None:
    require(patch, f"{name}'s number of dimensions", cache.dim(), 4)
    require(patch, f"{name}'s KV heads", cache.shape[2], 1)
    require(patch, f"{name}'s bytes a token", cache.shape[3] * cache.element_size(), BYTES_PER_TOKEN)


def require_indexer(patch: str, q: Any, cache: Any) -> None:
    """q [B, 1, H, 128] fp8; cache [pages, 64, 1, 132] of one byte an element."""
    if isinstance(q, tuple):
        raise UnsupportedLayout(f"patch {patch} scores fp8 queries; the FP4 indexer passes a pair of tensors")
    require(patch, "q's number of dimensions", q.dim(), 4)
    require(patch, "query tokens a row", q.shape[1], 1)
    require(patch, "q's head dimension", q.shape[3], INDEX_HEAD_DIM)
    require(patch, "the indexer cache's page size", cache.shape[1], INDEX_PAGE)
    require(
        patch,
        "the indexer cache's bytes a token",
        cache.shape[-1] * cache.element_size(),
        INDEX_BYTES_PER_TOKEN,
    )
