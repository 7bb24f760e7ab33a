"""The indexer kernel's tuned configurations: data alone, one list a card, chosen by the number of query rows."""

from __future__ import annotations

from dataclasses import dataclass

# Widths of the in-kernel prefix sum over row lengths; more rows than the last are launched in slices of it.
ROW_BLOCKS = (64, 512, 4096)


@dataclass(frozen=True)
class IndexerConfig:
    """`max_rows`: the most query rows it serves; `tile`: cache tokens a step; `ctas_per_sm`: resident programs."""

    max_rows: int
    tile: int
    num_warps: int
    num_stages: int
    ctas_per_sm: int


TABLE: dict[str, tuple[IndexerConfig, ...]] = {
    "sm_90": (
        IndexerConfig(max_rows=8, tile=64, num_warps=4, num_stages=3, ctas_per_sm=4),
        IndexerConfig(max_rows=ROW_BLOCKS[-1], tile=128, num_warps=4, num_stages=3, ctas_per_sm=4),
    ),
    # Under the interpreter a program costs tens of milliseconds: few of them.
    "interpreter": (
        IndexerConfig(max_rows=4, tile=64, num_warps=4, num_stages=2, ctas_per_sm=2),
        IndexerConfig(max_rows=ROW_BLOCKS[-1], tile=128, num_warps=4, num_stages=2, ctas_per_sm=1),
    ),
    "sm_120": (
        IndexerConfig(max_rows=8, tile=64, num_warps=4, num_stages=3, ctas_per_sm=2),
        IndexerConfig(max_rows=ROW_BLOCKS[-1], tile=128, num_warps=4, num_stages=3, ctas_per_sm=1),
    ),
}


def choose(card: str, rows: int) -> IndexerConfig:
    """Return the first configuration of `card` that serves `rows` query rows (at most ROW_BLOCKS[-1])."""
    return next(config for config in TABLE[card] if rows <= config.max_rows)


def row_block(rows: int) -> int:
    """Return the width of the prefix sum for `rows` query rows (at most ROW_BLOCKS[-1])."""
    return next(block for block in ROW_BLOCKS if rows <= block)
