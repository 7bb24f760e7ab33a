"""How a top-k is judged: every slot written, each entry reachable and unique, the scores those of the oracle."""

from __future__ import annotations

import torch
from dsv4_kernels import topk_transform
from dsv4_kernels.reference.topk import select_row

from kit.arguments import TopKInputs
from kit.cache import poisoned_memory

UNWRITTEN = -777


def run(inputs: TopKInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Call the kernel with poisoned outputs and scratch; return the cache indices and the raw ones."""
    shape = (inputs.scores.shape[0], inputs.topk)
    out = torch.full(shape, UNWRITTEN, dtype=torch.int32, device=inputs.scores.device)
    raw = out.clone()
    with poisoned_memory():
        returned = topk_transform(*inputs.arguments(), out=out, out_raw_indices=raw)
    assert returned is out
    return out, raw


def assert_topk(out: torch.Tensor, raw: torch.Tensor, inputs: TopKInputs) -> None:
    """Judge both outputs row by row. Selection is exact, so no bound is needed anywhere."""
    limit = min(inputs.scores.shape[1], inputs.page_table.shape[1] * inputs.page_size)
    for row, length in enumerate(inputs.seq_lens.clamp(0, limit).tolist()):
        got, chosen = out[row].long(), raw[row].long()
        count = min(length, inputs.topk)
        assert not (got == UNWRITTEN).any(), f"row {row}: {(got == UNWRITTEN).sum().item()} slots were never written"
        assert (got[count:] == -1).all(), f"row {row}: slots past its {count} entries are not -1"
        assert (chosen[count:] == -1).all(), f"row {row}: raw slots past its {count} entries are not -1"
        chosen = chosen[:count]
        assert ((chosen >= 0) & (chosen < length)).all(), f"row {row}: an index outside its {length} scores"
        assert len(chosen.unique()) == count, f"row {row}: {count - len(chosen.unique())} entries twice"
        page = inputs.page_table[row, chosen // inputs.page_size].long()
        reached = page * inputs.page_size + chosen % inputs.page_size
        assert torch.equal(got[:count], reached), f"row {row}: cache indices are not those of the chosen entries"
        expected = select_row(inputs.scores[row, :length], inputs.topk)
        # As a multiset of scores (NaN as a value), then as a set: equal scores are won by the lowest index.
        scores = inputs.scores[row, :length]
        for which, (a, b) in {
            "scores": (scores[chosen].sort().values, scores[expected].sort().values),
            "indices": (chosen.sort().values, expected.sort().values),
        }.items():
            same = torch.isclose(a, b, rtol=0, atol=0, equal_nan=True)
            assert same.all(), f"row {row}: {(~same).sum().item()} selected {which} of {count} differ from the oracle's"
        if length <= inputs.topk:
            assert torch.equal(chosen, expected), f"row {row}: no more than k entries, but not in order"
