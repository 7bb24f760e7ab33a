"""How far rounding alone may move a decode's output: derived from each row's own softmax, not from a typical row.

Tensor cores take the softmax weights p[i] in bf16, off by d[i] <= 2**-8 of themselves each. Divided by the sum of the
weights as rounded, the output is off by

    sum p[i] d[i] (k[i] - out)      tokens named twice share one d

so with a[i] = p[i] (k[i] - out) an error is at most 2**-8 sqrt(n) |a| over n distinct tokens, by Cauchy and Schwarz,
and typically 2**-8 |a| / sqrt(3). A bound from typical rows fails where few tokens nearly cancel; this one knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from dsv4_kernels import layout

from kit.cache import DecodeInputs

WEIGHT_ROUNDING = 2**-8  # half a step of bf16's 8 significant bits, of a value at the bottom of its binade
SCORE_ROUNDING = 2**-21  # of |q||k|: fp32 and tensor-core accumulation of 512 products; a weight moves by as much


@dataclass(frozen=True)
class Rounding:
    """What rounding may do to out [B, S, H, D].

    values  |a| of each value [B, S, H, D] fp64
    tokens  distinct tokens of each query row [B, S]
    score   largest error of a score (natural logarithm); a weight is off by as much of itself
    weight  largest relative error of a softmax weight by its rounding to bf16
    """

    values: torch.Tensor
    tokens: torch.Tensor
    score: float
    weight: float = WEIGHT_ROUNDING

    @property
    def unit(self) -> float:
        """Largest relative error of one softmax weight."""
        return self.weight + self.score

    def rows(self) -> torch.Tensor:
        """|a| of each whole row of values [B, S, H]."""
        return self.values.square().sum(-1).sqrt()

    def roots(self, most: float) -> torch.Tensor:
        """sqrt(n), which no error passes, or ``most``, which none passes by chance; [B, S, 1]."""
        return self.tokens.double().sqrt().clamp(max=most)[..., None]

    def of_two(self) -> Rounding:
        """For the difference of two results that rounded apart."""
        return replace(self, score=2 * self.score, weight=2 * self.weight)


def rounding_of(inputs: DecodeInputs) -> Rounding:
    """Compute |a| and n in fp64 for every row of a call."""
    batch, queries, heads, _ = inputs.q.shape
    values = torch.zeros(batch, queries, heads, layout.HEAD_DIM, dtype=torch.float64, device=inputs.q.device)
    tokens = torch.zeros(batch, queries, dtype=torch.int64, device=inputs.q.device)
    for b in range(batch):
        for s in range(queries):
            parts = [_distinct(inputs.k_cache, inputs.indices[b, s], inputs.topk_length, b)]
            if inputs.extra_k_cache is not None and inputs.extra_indices is not None:
                parts.append(_distinct(inputs.extra_k_cache, inputs.extra_indices[b, s], inputs.extra_topk_length, b))
            keys = torch.cat([keys for keys, _ in parts])
            if not len(keys):
                continue
            counts = torch.cat([counts for _, counts in parts])
            scores = inputs.softmax_scale * (inputs.q[b, s].double() @ keys.T) + counts.double().log()
            shares = torch.softmax(scores, dim=1)
            if inputs.attn_sink is not None:
                shares *= torch.sigmoid(torch.logsumexp(scores, 1) - inputs.attn_sink.double())[:, None]
                out = torch.softmax(scores, dim=1) @ keys
            else:
                out = shares @ keys
            squared = shares.square()
            spread = squared @ keys.square() - 2 * out * (squared @ keys) + out.square() * squared.sum(1, keepdim=True)
            values[b, s] = spread.clamp(min=0).sqrt()
            tokens[b, s] = len(keys)
    return Rounding(values, tokens, SCORE_ROUNDING * inputs.score_magnitude)


def chance(mean_squares: torch.Tensor) -> float:
    """How many times its mean a sum of squared errors stays below: 7 deviations, a row's own being no more than its mean.

    A row of two tokens has that deviation, more tokens have less. Rows count as many as their weight in the sum makes.
    """
    total = mean_squares.sum()
    rows = (total.square() / mean_squares.square().sum()).item() if total > 0 else 1.0
    return 1 + 7 / math.sqrt(rows)


def _distinct(
    cache: torch.Tensor, row: torch.Tensor, lengths: torch.Tensor | None, request: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys [n, D] fp64 of a row's distinct tokens, and how often each is named."""
    if lengths is not None:
        row = row[: max(0, int(lengths[request]))]
    tokens, counts = torch.unique(row[row >= 0].long(), return_counts=True)
    return layout.unpack(cache, tokens).double(), counts
