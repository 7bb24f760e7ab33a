"""A launch that was captured is right for other lengths and other data than it was captured with.

On a GPU it is a replayed CUDA graph; without one the call is launched again on the same buffers (``kit.decode.recorded``).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dsv4_kernels import hc_prenorm, paged_mqa_logits, topk_transform
from dsv4_kernels.topk import _launch
from kit.compare import assert_bitwise_equal
from kit.decode import recorded
from kit.indexer import assert_logits_close
from kit.strategies_hc import HcCase
from kit.strategies_hc import build as build_hc
from kit.strategies_indexer import IndexerCase
from kit.strategies_indexer import build as build_indexer
from kit.strategies_topk import TopKCase
from kit.strategies_topk import build as build_topk
from kit.topk import UNWRITTEN, assert_topk
from test_hc_prenorm import assert_mixes_close
from test_topk_gather import OPTIONS

WIDTH = 17_000


@pytest.mark.field_case("K09", "K20")
@pytest.mark.parametrize("config", [None, *OPTIONS], ids=["table", "groups of 16", "groups of 4"])
@pytest.mark.parametrize("first", [0, WIDTH])
def test_a_top_k_follows_lengths(first: int, config, device: torch.device) -> None:
    """Captured on rows without entries and on the longest, then run for rows of every way that a row is selected from."""
    built = build_topk(TopKCase(lengths=(WIDTH,) * 4, pattern="few_values", topk=32), device)
    lengths = torch.full_like(built.seq_lens, first)
    inputs = built.replace(seq_lens=lengths)

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        out = torch.full((4, 32), UNWRITTEN, dtype=torch.int32, device=device)
        raw = out.clone()
        if config is None:
            topk_transform(*inputs.arguments(), out=out, out_raw_indices=raw)
        else:
            _launch(config, *inputs.arguments(), out, raw)
        return out, raw

    (out, raw), run, how = recorded(call)
    for step in ((0, 31, 33, 129), (1024, 1025, 5000, WIDTH), (16_385, 64, -4, 700)):
        lengths.copy_(torch.tensor(step))
        run()
        assert_topk(out, raw, inputs)
        assert_bitwise_equal((out, raw), call(), f"a {how} launch for lengths {step}")


@pytest.mark.field_case("K09", "K20")
@pytest.mark.parametrize("first", [0, 1500])
def test_indexer_logits_follow_lengths_and_pages(first: int, device: torch.device) -> None:
    built = build_indexer(IndexerCase(lengths=(1500,) * 3, max_seq_len=1500), device)
    lengths, table = torch.full_like(built.seq_lens, first), built.page_table.clone()
    inputs = built.replace(seq_lens=lengths, page_table=table)
    (logits,), run, _ = recorded(lambda: (paged_mqa_logits(*inputs.arguments(), clean_logits=True),))
    for step, roll in (((0, 63, 65), 1), ((1500, 1, 700), 2), ((64, 1499, -1), 1)):
        lengths.copy_(torch.tensor(step).view_as(lengths))
        table.copy_(table.roll(roll, 0))
        run()
        assert_logits_close(logits, inputs, clean=True)


@pytest.mark.parametrize("tokens", [1, 33])
def test_a_pre_norm_follows_its_data(tokens: int, device: torch.device) -> None:
    """Replays of two captured launches, with calls of the same stream between them: none disturbs another's sums."""
    x, fn, eps = build_hc(HcCase(tokens=tokens, width=1024), device)
    other = x.clone()

    def call(data: torch.Tensor) -> tuple[torch.Tensor]:
        return (hc_prenorm(data, fn, eps),)

    (mixes,), run, how = recorded(lambda: call(x))
    (others,), run_other, _ = recorded(lambda: call(other))
    for seed in range(1, 4):
        fresh, _, _ = build_hc(replace(HcCase(tokens=tokens, width=1024), seed=seed), device)
        x.copy_(fresh)
        other.copy_(-fresh)
        run()
        run_other()
        assert_mixes_close(mixes, x, fn, eps)
        assert_bitwise_equal((mixes,), call(x), f"a {how} launch")
        assert_bitwise_equal((others,), call(other), f"another {how} launch")
