"""Configurations that no card has timed: proved and compiled as the tables' are, listed by the sweeps, chosen by no launcher."""

from __future__ import annotations

from dataclasses import replace

from dsv4_kernels.card import CARDS
from dsv4_kernels.topk_table import TABLE as TOPK_TABLE
from dsv4_kernels.topk_table import TopKConfig

GATHER = {"room": 1024, "floor_warps": 16, "select_warps": 32}
WAYS = ({}, {"fused": True}, {"compact": True}, {"fused": True, "compact": True})
"""Of the gathering top-k."""


def gathering(card: str) -> tuple[TopKConfig, ...]:
    return tuple(replace(TOPK_TABLE[card][0], wide=True, **GATHER, **way) for way in WAYS)


UNTIMED: dict[str, dict[str, tuple]] = {"topk": {card.name: gathering(card.name) for card in CARDS}}
"""By module, then by card."""
