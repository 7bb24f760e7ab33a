"""How a kernel's output is compared with an oracle's; the bounds stand here, each with its reason."""

from __future__ import annotations

import torch

from kit.rounding import Rounding, chance

# An output value is rounded to bf16 (2**-8 of itself at most) from an fp32 one that is itself a little off.
OUTPUT_ROUNDING = 1.01 * 2**-8
# A value over more than 64 tokens passes 8 |a| by chance once in 1e13 (Hoeffding: 2 exp(-8**2 / 2)).
VALUE_DEVIATIONS = 8.0
# A row's error vector is 2 |a| long when its square is 12 times the mean, once in 1e7 even where 3 directions hold it all.
ROW_DEVIATIONS = 2.0
# The smallest normal fp32: below it results may be flushed to zero.
SUBNORMAL = 2.0**-126
# FlashMLA's bound on lse, which is for scores of a few units; larger scores add rounding of a product of norms.
LSE_BOUND = 1e-6


def cosine_difference(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """1 - 2<x, y>/(|x|**2 + |y|**2) over the last dimension, in fp64: 0 where equal, also for two zeros.

    Unlike 1 - cosine it is not blind to a wrong length of the vector.
    """
    x, y = actual.double(), expected.double()
    scale = (x * x + y * y).sum(-1)
    return torch.where(scale == 0, 0.0, ((x - y) ** 2).sum(-1) / scale.clamp(min=torch.finfo(torch.float64).tiny))


def assert_decode_close(
    actual: tuple[torch.Tensor, torch.Tensor],
    expected: tuple[torch.Tensor, torch.Tensor],
    rounding: Rounding,
    output_rounding: float = OUTPUT_ROUNDING,
) -> None:
    """Compare (out [B, S, H, D], lse [B, H, S]) with an oracle's: no NaN, empty rows exact, the rest within rounding.

    Three bounds on out, each derived from the row's own softmax (``kit.rounding``): on each value, on each row of D
    values, and on the whole. For keys drawn at random the last comes to a cosine difference of 5e-6, the bound of
    FlashMLA's and DeepGEMM's tests.
    """
    out, lse = actual
    expected_out, expected_lse = expected
    assert out.shape == expected_out.shape, f"out is {tuple(out.shape)}, the oracle's {tuple(expected_out.shape)}"
    assert lse.shape == expected_lse.shape, f"lse is {tuple(lse.shape)}, the oracle's {tuple(expected_lse.shape)}"
    assert out.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    if not out.numel():
        return
    _refuse_nan("out", out)
    _refuse_nan("lse", lse)

    empty = expected_lse == -torch.inf
    assert torch.equal(lse == -torch.inf, empty), "lse is -inf for other rows than those without tokens"
    zero = (expected_out == 0).all(-1)
    assert (out[zero] == 0).all(), "out is not exactly 0 where the oracle's row is (no tokens, or a sink of +inf)"

    lse_bound = LSE_BOUND + rounding.score
    lse_error = (lse - expected_lse)[~empty].abs()
    if lse_error.numel():
        worst = lse_error.max().item()
        assert worst <= lse_bound, f"lse is off by {worst:.3g}, more than {lse_bound:.3g}"

    wanted = expected_out.double()
    error = out.double() - wanted
    # Where the expected values are rounded themselves, the two may fall to either side of a tie.
    step = output_rounding + (OUTPUT_ROUNDING if expected_out.dtype == torch.bfloat16 else 0.0)
    bound = rounding.unit * rounding.roots(VALUE_DEVIATIONS)[..., None] * rounding.values + step * wanted.abs()
    _within("value", error.abs(), bound + SUBNORMAL, wanted.abs())

    norm, lengths = wanted.norm(dim=-1), rounding.rows()
    bound = rounding.unit * rounding.roots(ROW_DEVIATIONS) * lengths + output_rounding * norm
    _within("row", error.norm(dim=-1), bound + SUBNORMAL, norm)

    # Both roundings are evenly distributed at most: a third of the largest square on average.
    mean_squares = ((rounding.unit * lengths).square() + (output_rounding * norm).square()).flatten() / 3
    allowed = chance(mean_squares) * mean_squares.sum()
    scale = 2 * norm.square().sum().clamp(min=SUBNORMAL)
    whole, most = (error.square().sum() / scale).item(), (allowed / scale).item()
    assert whole <= most, f"cosine difference {whole:.3g} of the whole output is above {most:.3g}"


def _within(what: str, error: torch.Tensor, bound: torch.Tensor, size: torch.Tensor) -> None:
    excess = error - bound
    at = int(excess.argmax())
    place = ", ".join(str(int(i)) for i in torch.unravel_index(torch.tensor(at), error.shape))
    assert excess.flatten()[at] <= 0, (
        f"{(excess > 0).sum().item()} of {error.numel()} {what}s are off by more than rounding explains, the worst at "
        f"[{place}]: {error.flatten()[at].item():.3g} off {size.flatten()[at].item():.3g}, where "
        f"{bound.flatten()[at].item():.3g} is the bound"
    )


def assert_bitwise_equal(actual: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], what: str) -> None:
    """Compare bytes, so that NaN equals itself and -0 does not equal 0."""
    for number, (x, y) in enumerate(zip(actual, expected, strict=True)):
        same = torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        assert same, f"{what}: result {number} differs in {(x != y).sum().item()} of {x.numel()} values"


def _refuse_nan(name: str, tensor: torch.Tensor) -> None:
    count = tensor.isnan().sum().item()
    assert count == 0, f"{name} has {count} NaN of {tensor.numel()}: poison leaked, or a value was never written"
