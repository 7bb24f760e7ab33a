"""The merge carries on from one group of splits to the next: more splits than it reads at a time."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels.sparse_mla_table import MERGE_INTERPRETED, DecodeConfig, choose_merge
from kit.cache import DecodeCase, Source, build
from kit.decode import assert_matches_oracles, decode

CONFIG = DecodeConfig(block_h=16, block_n=32, num_warps=4, num_stages=2)


@pytest.mark.field_case("K11", "K12")
@pytest.mark.parametrize("sink", ["none", "normal"])
def test_more_splits_than_the_merge_reads_at_a_time(sink: str, device: torch.device) -> None:
    merge = choose_merge(64) if device.type == "cuda" else MERGE_INTERPRETED
    splits = min(merge.splits + 3, 64)
    lanes = splits * CONFIG.block_n
    inputs = build(DecodeCase(1, 1, 16, Source(64, lanes // 32 + 3, lanes, None), sink=sink), device)
    assert_matches_oracles(decode(inputs, CONFIG, splits), inputs)
