"""The sparse-MLA decode's tuned configurations: data alone, one list a card, chosen by query rows and heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DecodeConfig:
    """One tiling: heads a program, tokens a step, warps, software-pipeline stages of the token loop.

    ``pdl``: where there are splits, their merge's launch overlaps them. ``kernel``: "triton" is the portable one; "hopper"
    (``sparse_mla_hopper``) has 64 heads, 64 tokens, two stages and three warpgroups, of which num_warps names one.
    """

    block_h: int
    block_n: int
    num_warps: int
    num_stages: int
    pdl: bool = False
    kernel: Literal["triton", "hopper"] = "triton"

    def __post_init__(self) -> None:
        if self.kernel == "hopper" and (self.block_h, self.block_n, self.num_stages) != (64, 64, 2):
            raise ValueError(f"the hopper kernel has one tiling, 64 heads by 64 tokens in 2 stages, not {self}")


@dataclass(frozen=True)
class Rule:
    """Serves up to ``max_rows`` query rows (B*S) of up to ``max_heads`` heads (None: any number).

    The launch aims at ``programs_per_sm`` programs a multiprocessor: fewer rows get more splits, up to ``max_splits``, with
    at least ``min_tiles`` tiles each.
    """

    max_rows: int | None
    max_heads: int | None
    config: DecodeConfig
    programs_per_sm: float = 1.0
    max_splits: int = 64
    min_tiles: int = 1


# Bytes of spilled registers a thread that a configuration may cost. The 64-head tile's accumulators alone take 128 of a
# thread's 255 registers; for sm_90 it spills 72 bytes under triton 3.8 and 144 under 3.6, and on an H200 that is faster
# (73 us at 128+512 rows of 64 heads, B=64) than converting fp8 one value at a time, which spilled 88 (79 us). The other
# tiles spill none.
SPILL_BOUND = 144

# On an H200 at 128+512 rows of 64 heads, cold L2 (gluon_mla_check.py, 2026-11-30): 24.8, 44.1, 56.0 and 101 us at B=16, 64, 128
# and 256, where the Triton tile of 64 heads takes 29.5, 56.8, 78.7 and 145, and FlashMLA 22.3, 47.0, 50.4 and 92.5.
HOPPER = DecodeConfig(block_h=64, block_n=64, num_warps=4, num_stages=2, kernel="hopper", pdl=True)

# The first rule that fits is taken; the last of each card fits everything.
TABLE: dict[str, tuple[Rule, ...]] = {
    "sm_90": (
        Rule(None, 16, DecodeConfig(block_h=16, block_n=32, num_warps=4, num_stages=3), programs_per_sm=2.0),
        Rule(2, None, DecodeConfig(block_h=16, block_n=32, num_warps=4, num_stages=3), programs_per_sm=1.0),
        Rule(4, 32, DecodeConfig(block_h=16, block_n=32, num_warps=4, num_stages=3), programs_per_sm=1.0),
        Rule(None, 32, DecodeConfig(block_h=32, block_n=64, num_warps=8, num_stages=2), programs_per_sm=1.0),
        Rule(None, None, HOPPER, programs_per_sm=1.0, min_tiles=2),
        # The interpreter's.
        Rule(None, None, DecodeConfig(block_h=64, block_n=64, num_warps=8, num_stages=2), programs_per_sm=1.0),
    ),
    "sm_120": (
        Rule(None, None, DecodeConfig(block_h=16, block_n=32, num_warps=8, num_stages=2), programs_per_sm=1.0),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class MergeConfig:
    """The merge of splits: heads and output dimensions a program, splits it reads at a time, warps."""

    heads: int
    columns: int
    splits: int
    num_warps: int


# By the number of splits at most; the last one fits any number.
MERGES = (
    (4, MergeConfig(heads=1, columns=512, splits=4, num_warps=4)),
    (8, MergeConfig(heads=1, columns=512, splits=8, num_warps=4)),
    (None, MergeConfig(heads=1, columns=128, splits=16, num_warps=4)),
)
# The interpreter pays by the program and not by the element.
MERGE_INTERPRETED = MergeConfig(heads=16, columns=512, splits=4, num_warps=4)


def choose(card: str, rows: int, heads: int, interpreted: bool = False) -> Rule:
    """Return the first rule of ``card`` that serves ``rows`` query rows of ``heads`` heads (and can be interpreted)."""
    return next(
        rule
        for rule in TABLE[card]
        if (rule.max_rows is None or rows <= rule.max_rows)
        and (rule.max_heads is None or heads <= rule.max_heads)
        and (rule.config.kernel == "triton" or not interpreted)
    )


def split_count(rule: Rule, rows: int, heads: int, capacity: int, sms: int) -> int:
    """Splits of each row: enough programs to fill ``sms`` multiprocessors, no more than the rule's share of ``capacity``'s tiles.

    Depends on shapes alone, so that a captured graph stays right when lengths change.
    """
    tiles = max(1, -(-capacity // rule.config.block_n))
    programs = rows * -(-heads // rule.config.block_h)
    wanted = int(sms * rule.programs_per_sm) // max(programs, 1)
    return max(1, min(wanted, -(-tiles // rule.min_tiles), rule.max_splits))


def choose_merge(splits: int) -> MergeConfig:
    """Return the first merge configuration that serves ``splits`` splits."""
    return next(config for limit, config in MERGES if limit is None or splits <= limit)


def configurations(card: str) -> tuple[DecodeConfig, ...]:
    """Every configuration that a launch on ``card`` can choose, once."""
    return tuple(dict.fromkeys(rule.config for rule in TABLE[card]))


def name_of(config: DecodeConfig) -> str:
    """What a configuration is called where it is compiled, proved and timed."""
    tile = f"h={config.block_h},n={config.block_n},warps={config.num_warps},stages={config.num_stages}"
    return tile + ",pdl" * config.pdl + ("" if config.kernel == "triton" else f",{config.kernel}")
