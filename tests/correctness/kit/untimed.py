"""Configurations that no card has timed: proved and compiled as the tables' are, listed by the sweeps, chosen by no launcher."""

from __future__ import annotations

from dataclasses import replace

from dsv4_kernels.card import CARDS
from dsv4_kernels.hyper_connection_table import HcConfig
from dsv4_kernels.topk_table import TABLE as TOPK_TABLE
from dsv4_kernels.topk_table import TopKConfig

GATHER = {"room": 1024, "floor_warps": 16, "select_warps": 16, "wide": True}
WAYS = ({}, {"pdl": True, "chunk": 256, "select_warps": 32})
"""Of the gathering top-k."""


def gathering(card: str) -> tuple[TopKConfig, ...]:
    return tuple(replace(TOPK_TABLE[card][0], **(GATHER | way)) for way in WAYS)


BLOCKWISE = tuple(
    HcConfig(64, 16, 128, splits, warps, 3, fused=True, fused_tokens=together)
    for splits, warps, together in [(32, 4, 4), (32, 4, 16), (32, 8, 16), (64, 8, 8), (16, 4, 16)]
)
"""Of the pre-norm: blocks of 16 tokens, each of which the last of its programs adds up."""
UNTIMED: dict[str, dict[str, tuple]] = {
    "topk": {card.name: gathering(card.name) for card in CARDS},
    "hyper_connection": {card.name: BLOCKWISE for card in CARDS},
}
"""By module, then by card."""
