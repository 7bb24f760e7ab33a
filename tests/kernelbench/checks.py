"""What a timed output is held to: ours to the correctness suite's own bounds, a peer to computing the same thing.

A check takes the inputs, what the references gave on them, and the output that the timed replays left; it raises
AssertionError. References are computed once for each set of inputs, whatever is checked against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from dsv4_kernels import reference
from dsv4_kernels.reference import indexer as indexer_oracle
from kernelbench.inputs import DecodeInputs, HcInputs, IndexerInputs, Inputs, TopKInputs
from kit.compare import assert_decode_close, cosine_difference
from kit.indexer import assert_rows_close, bounds, row_lengths
from kit.rounding import rounding_of

Check = Callable[[Any, Any, Any], None]

PEER_COSINE = 1e-4
"""1 - cosine of a peer's whole output. tf32 and bf16 rounding leave at most 1e-5 of it; another formula leaves 1e-2."""

HC_BOUND = 2**-16.5
"""Of the root of the sum of squared products: the bound of tests/correctness/test_hc_prenorm.py."""


@dataclass(frozen=True)
class HcExpected:
    mixes: torch.Tensor
    terms: torch.Tensor
    root: torch.Tensor


def expected(inputs: Inputs) -> Any:
    """What the references give on a set of inputs."""
    if isinstance(inputs, DecodeInputs):
        return reference.sparse_mla_decode(*inputs.arguments()), rounding_of(inputs)
    if isinstance(inputs, IndexerInputs):
        # To the longest row alone: what lies behind is not specified, and may be a million columns.
        longest = int(inputs.seq_lens.max())
        narrow = inputs.replace(max_seq_len=longest)
        return narrow, indexer_oracle.paged_mqa_logits(*narrow.arguments()), bounds(narrow)
    if isinstance(inputs, TopKInputs):
        return specified(inputs).topk(inputs.topk, dim=1, sorted=True).values
    assert isinstance(inputs, HcInputs)
    exact = inputs.x.double()
    root = (exact.square().mean(-1, keepdim=True) + inputs.eps).sqrt()
    weights = inputs.fn.double()
    return HcExpected(exact @ weights.T / root, (exact.square() @ weights.square().T).sqrt() / root, root)


def specified(inputs: TopKInputs) -> torch.Tensor:
    """The scores of rows of one length, without what lies behind it."""
    return inputs.scores[:, : int(inputs.seq_lens.max())]


def check_decode(inputs: DecodeInputs, want: Any, got: Any) -> None:
    assert_decode_close(got, *want)


def check_peer_decode(inputs: DecodeInputs, want: Any, got: Any) -> None:
    # A padded peer's further heads are nobody's; peers do not agree on whether the sink is in the lse.
    out = got[0].reshape(len(inputs.q), 1, -1, 512)[:, :, : inputs.q.shape[2]]
    _same(out, want[0][0])


def check_indexer(inputs: IndexerInputs, want: Any, got: torch.Tensor) -> None:
    narrow, logits, bound = want
    assert got.shape == (len(inputs.q), inputs.max_seq_len), f"logits are {tuple(got.shape)}"
    assert_rows_close(got, logits, bound, row_lengths(narrow))


def check_peer_indexer(inputs: IndexerInputs, want: Any, got: torch.Tensor) -> None:
    narrow, logits, _ = want
    for row, length in enumerate(row_lengths(narrow)):
        _same(got[row, :length], logits[row, :length])


def check_topk(inputs: TopKInputs, want: torch.Tensor, got: torch.Tensor) -> None:
    """As a multiset of scores, with every index reachable through the page table and none twice."""
    rows, pages = inputs.page_table.shape
    back = torch.full((int(inputs.page_table.max()) + 1,), -1, dtype=torch.long, device=got.device)
    numbers = torch.arange(rows * pages, device=got.device)
    back[inputs.page_table.reshape(-1).long()] = numbers
    assert (got >= 0).all(), f"{(got < 0).sum().item()} of {got.numel()} entries are no cache index"
    # Looked at before it is one: an index past the end ends the process's use of the GPU, and with it all later shapes.
    page = got.long() // inputs.page_size
    assert (page < len(back)).all(), (
        f"{(page >= len(back)).sum().item()} of {got.numel()} entries lie past the last page"
    )
    place = back[page]
    owner = torch.arange(rows, device=got.device)[:, None]
    assert torch.equal(place // pages, owner.expand_as(place)), "an index lies on a page of another row"
    index = place % pages * inputs.page_size + got.long() % inputs.page_size
    assert (index < inputs.seq_lens[:, None]).all(), "an index lies past its row's scores"
    ordered = index.sort(dim=1).values
    assert (ordered[:, 1:] != ordered[:, :-1]).all(), "an index stands twice"
    found = inputs.scores.gather(1, index).sort(dim=1, descending=True).values
    assert torch.equal(found, want), f"{(found != want).sum().item()} scores are not among the largest"


check_peer_topk = check_topk


def check_topk_values(inputs: TopKInputs, want: torch.Tensor, got: Any) -> None:
    assert torch.equal(got[0].sort(dim=1, descending=True).values, want), "the values are not the largest"


def check_hc(inputs: HcInputs, want: HcExpected, got: torch.Tensor) -> None:
    assert got.shape == want.mixes.shape
    assert got.dtype == torch.float32
    error = ((got - want.mixes).abs() / want.terms).max().item()
    assert error <= HC_BOUND, f"a mix is off by {error:.2g} of its terms, more than {HC_BOUND:.2g}"


def check_peer_hc(inputs: HcInputs, want: HcExpected, got: torch.Tensor) -> None:
    _same(got, want.mixes)


def check_split_hc(inputs: HcInputs, want: HcExpected, got: tuple[torch.Tensor, torch.Tensor]) -> None:
    sums, squares = got[0].double().sum(0), got[1].double().sum(0)
    _same(sums * torch.rsqrt(squares / inputs.x.shape[1] + inputs.eps)[:, None], want.mixes)


EXACT = "the references, exactly"
WITHIN = "the references, within the correctness suite's bounds"
ALIKE = f"the references, as the same function: 1 - cosine at most {PEER_COSINE:g}"
HELD_TO: dict[Check, str] = {
    check_decode: WITHIN,
    check_indexer: WITHIN,
    check_topk: EXACT,
    check_topk_values: f"{EXACT}, its values alone",
    check_hc: WITHIN,
    check_split_hc: f"{ALIKE}, its sums added up",
}


def held_to(check: Check) -> str:
    """What a timed output was held to, in words."""
    return HELD_TO.get(check, ALIKE)


def _same(got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.shape == want.shape, f"the output is {tuple(got.shape)}, the reference's {tuple(want.shape)}"
    assert not got.isnan().any(), f"{got.isnan().sum().item()} NaN of {got.numel()}"
    difference = cosine_difference(got.flatten(), want.flatten()).item()
    assert difference <= PEER_COSINE, f"cosine difference {difference:.3g} from the reference is above {PEER_COSINE}"
