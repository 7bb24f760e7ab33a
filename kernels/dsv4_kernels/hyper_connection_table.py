"""The hyper-connection pre-norm's tuned configurations: data alone, one list a card, chosen by the number of tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HcConfig:
    """`max_tokens`: the most tokens it serves. `splits` programs share the sum over the width of a block of tokens.

    Another launch adds the splits up; `pdl`: it overlaps the first.
    """

    max_tokens: int
    block_tokens: int
    block_width: int
    splits: int
    num_warps: int
    num_stages: int
    pdl: bool = False

    @property
    def merge_tokens(self) -> int:
        """Tokens whose splits a program adds up at a time."""
        return max(1, 32 // self.splits)


ANY = 2**31 - 1
TABLE: dict[str, tuple[HcConfig, ...]] = {
    "sm_90": (
        HcConfig(max_tokens=16, block_tokens=16, block_width=64, splits=128, num_warps=4, num_stages=3, pdl=True),
        HcConfig(max_tokens=64, block_tokens=64, block_width=64, splits=128, num_warps=4, num_stages=3, pdl=True),
        HcConfig(max_tokens=512, block_tokens=64, block_width=64, splits=32, num_warps=4, num_stages=4),
        HcConfig(max_tokens=16384, block_tokens=128, block_width=64, splits=8, num_warps=8, num_stages=3),
        HcConfig(max_tokens=ANY, block_tokens=128, block_width=64, splits=4, num_warps=8, num_stages=4),
    ),
    # Under the interpreter a program costs tens of milliseconds: few of them.
    "interpreter": (
        HcConfig(max_tokens=32, block_tokens=16, block_width=128, splits=4, num_warps=4, num_stages=2),
        HcConfig(max_tokens=ANY, block_tokens=64, block_width=64, splits=1, num_warps=4, num_stages=2),
    ),
    "sm_120": (
        HcConfig(max_tokens=16, block_tokens=16, block_width=128, splits=128, num_warps=4, num_stages=2),
        HcConfig(max_tokens=64, block_tokens=16, block_width=128, splits=64, num_warps=4, num_stages=3),
        HcConfig(max_tokens=512, block_tokens=64, block_width=64, splits=32, num_warps=4, num_stages=3),
        HcConfig(max_tokens=4096, block_tokens=64, block_width=64, splits=8, num_warps=4, num_stages=3),
        HcConfig(max_tokens=ANY, block_tokens=64, block_width=64, splits=1, num_warps=4, num_stages=3),
    ),
}


def choose(card: str, tokens: int) -> HcConfig:
    """Return the first configuration of `card` that serves `tokens` tokens."""
    return next(config for config in TABLE[card] if tokens <= config.max_tokens)
