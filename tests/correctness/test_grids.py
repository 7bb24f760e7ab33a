"""Many rows stay within CUDA's grid: 2**31 - 1 programs on x, 65,535 on y and z (CUDA programming guide, compute capabilities)."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels import hyper_connection, indexer, layout, paged_mqa_logits, sparse_mla, topk
from dsv4_kernels.card import CARDS, Card
from dsv4_kernels.hyper_connection_table import TABLE as HC_TABLE
from dsv4_kernels.sparse_mla_table import configurations
from dsv4_kernels.topk_table import TABLE as TOPK_TABLE
from dsv4_kernels.topk_table import TopKConfig
from kit import launches

META = torch.device("meta")
ROWS = 100_000
MOST = (2**31 - 1, 65_535, 65_535)


def integers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int32, device=META)


def score_all(card: Card) -> None:
    q = torch.empty(ROWS, 1, 64, 128, dtype=torch.float8_e4m3fn, device=META)
    cache = torch.empty(9, 64, 1, 132, dtype=torch.uint8, device=META)
    paged_mqa_logits(q, cache, torch.empty(ROWS, 64, device=META), integers(ROWS), integers(ROWS, 4), 200, True)


def select_from_all(configs: tuple[TopKConfig, ...]) -> None:
    for config in configs:
        out = integers(ROWS, config.max_k)
        scores, table = torch.empty(ROWS, 65_536, device=META), integers(ROWS, 1024)
        topk._launch(config, scores, integers(ROWS), table, 64, config.max_k, out, out)


def mix_all(card: Card) -> None:
    # As many blocks of tokens: the width may be small.
    for config in HC_TABLE[card.name]:
        tokens = torch.empty(ROWS * config.block_tokens, 128, dtype=torch.bfloat16, device=META)
        mixes = torch.empty(tokens.shape[0], 24, device=META)
        hyper_connection._launch(config, tokens, torch.empty(24, 128, device=META), 1e-6, mixes)


def decode_all(card: Card) -> None:
    q = torch.empty(ROWS, 1, 64, layout.HEAD_DIM, dtype=torch.bfloat16, device=META)
    cache, indices = layout.allocate(2, 64, META), integers(ROWS, 1, 128)
    # Hopper's own kernel is launched with the same grid, from a module that isn't recorded.
    for config in (each for each in configurations(card.name) if each.kernel == "triton"):
        sparse_mla.launch(config, 4, q, cache, indices, None, None, 1.0)


CALLS = {
    "indexer": (indexer, score_all),
    "topk": (topk, lambda card: select_from_all(TOPK_TABLE[card.name])),
    "hyper_connection": (hyper_connection, mix_all),
    "sparse_mla": (sparse_mla, decode_all),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_a_hundred_thousand_rows_fit_the_grid(name: str, card: Card) -> None:
    module, call = CALLS[name]
    with launches.recorded(module, card) as log:
        call(card)
    assert log
    for launch in log:
        grid = (*launch.grid, 1, 1)[:3]
        assert all(1 <= size <= most for size, most in zip(grid, MOST, strict=True)), f"{launch.kernel}: grid {grid}"
