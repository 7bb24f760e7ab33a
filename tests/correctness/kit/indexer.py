"""How indexer logits are judged, position by position; the bounds stand here, each with its reason."""

from __future__ import annotations

import torch
from dsv4_kernels import paged_mqa_logits
from dsv4_kernels.reference import indexer as oracle

from kit.arguments import IndexerInputs
from kit.cache import poisoned_memory
from kit.compare import cosine_difference

# Products of two fp8 values are exact in fp32; 128 of them and 64 heads are summed in another order than the oracle's,
# which costs a few steps (2**-24) of the sum of magnitudes. Hopper's tensor cores align an fp8 sum to 13 bits below its
# largest term instead (DeepSeek-V3 report, 3.3.2): 2**-13 of it for each of four blocks of 32.
BOUND = 2**-18
TENSOR_CORE_BOUND = 2**-11
COSINE_BOUND = 5e-6  # DeepGEMM's bar against an oracle that rounds as the kernel does
# Fewer logits than a page may all be near 0 (64 weighted heads cancel), where a cosine says nothing: their bound is
# that of each position alone.
COSINE_TOKENS = 64


def logits(inputs: IndexerInputs, clean: bool = False) -> torch.Tensor:
    """Call the kernel with its output memory poisoned."""
    with poisoned_memory():
        return paged_mqa_logits(*inputs.arguments(), clean_logits=clean)


def magnitudes(inputs: IndexerInputs) -> torch.Tensor:
    """The sum of magnitudes behind each logit: scale * sum_h |w| * (|q| . |k|), NaN past the row's length."""

    def score(q, keys, scales, weights):
        return (keys.abs() @ q.abs().T) @ weights.abs() * scales.abs()

    return oracle._each_chunk(*inputs.arguments(), False, score)


def row_lengths(inputs: IndexerInputs) -> list[int]:
    """How many logits of each row are specified."""
    limit = min(inputs.max_seq_len, inputs.page_table.shape[1] * oracle.PAGE)
    return inputs.seq_lens.reshape(-1).clamp(0, limit).tolist()


def bounds(inputs: IndexerInputs) -> torch.Tensor:
    """By how much each logit may be off."""
    return magnitudes(inputs) * (TENSOR_CORE_BOUND if inputs.q.is_cuda else BOUND)


def assert_rows_close(actual: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor, lengths: list[int]) -> None:
    """Compare the first `lengths` logits of every row, position by position and by cosine difference."""
    for row, length in enumerate(lengths):
        got, want = actual[row, :length], expected[row, :length]
        bad = ~((got - want).abs() <= bound[row, :length])
        assert not bad.any(), (
            f"row {row} of {length} tokens: {bad.sum().item()} logits off, the first at {int(bad.nonzero()[0])}: "
            f"{got[bad][0].item():.6g} instead of {want[bad][0].item():.6g}"
        )
        difference = cosine_difference(got, want).item() if length >= COSINE_TOKENS else 0.0
        assert difference <= COSINE_BOUND, f"row {row}: cosine difference {difference:.3g} above {COSINE_BOUND}"


def assert_logits_close(actual: torch.Tensor, inputs: IndexerInputs, clean: bool) -> None:
    """Compare every position of every row with both oracles; with `clean`, the rest must be -inf."""
    assert actual.shape == (inputs.q.shape[0], inputs.max_seq_len), f"logits are {tuple(actual.shape)}"
    assert actual.dtype == torch.float32
    lengths, bound = row_lengths(inputs), bounds(inputs)
    for expected in (
        oracle.paged_mqa_logits(*inputs.arguments(), clean_logits=True),
        oracle.paged_mqa_logits_rounded(*inputs.arguments(), clean_logits=True),
    ):
        assert_rows_close(actual, expected, bound, lengths)
    for row, length in enumerate(lengths if clean else ()):
        assert (actual[row, length:] == -torch.inf).all(), f"row {row}: not -inf from its length {length} on"
