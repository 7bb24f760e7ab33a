"""How a kernel's output is compared with an oracle's; the bounds stand here, each with its reason."""

from __future__ import annotations

import torch

# 1 - cosine of a whole output: the bound of FlashMLA's and DeepGEMM's tests.
COSINE_BOUND = 5e-6
# The same of one row of 512 values. bf16 rounds by 2**-8 of a value at most. Rounded weights do worst with two tokens
# of equal weight, rounded apart: 2**-8 of the output, so 2**-16/2 = 7.6e-6; the output's own rounding adds 2**-16/6.
ROW_COSINE_BOUND = 1.1e-5
# FlashMLA's relative bound: two bf16 steps of the output.
RELATIVE_BOUND = 2.01 / 128
# Where an output value cancels, what is left is the weights' rounding: rms 2**-8/sqrt(3) of the row's rms value at
# most; the largest of 1e6 normal errors is 5 of those, this is 7.
ABSOLUTE_BOUND = 2**-6
# FlashMLA's bound on lse, which is for scores of a few units; larger scores add fp32 (and tensor-core accumulation)
# rounding of a product of norms |q||k|, of which 2**-21 is four steps.
LSE_BOUND = 1e-6
LSE_STEP = 2**-21


def cosine_difference(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """1 - 2<x, y>/(|x|**2 + |y|**2) over the last dimension, in fp64: 0 where equal, also for two zeros.

    Unlike 1 - cosine it is not blind to a wrong length of the vector.
    """
    x, y = actual.double(), expected.double()
    scale = (x * x + y * y).sum(-1)
    return torch.where(scale == 0, 0.0, ((x - y) ** 2).sum(-1) / scale.clamp(min=torch.finfo(torch.float64).tiny))


def assert_decode_close(
    actual: tuple[torch.Tensor, torch.Tensor], expected: tuple[torch.Tensor, torch.Tensor], score_magnitude: float
) -> None:
    """Compare (out [B, S, H, D], lse [B, H, S]) with an oracle's: no NaN, empty rows exact, the rest within bounds."""
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

    lse_bound = LSE_BOUND + LSE_STEP * score_magnitude
    lse_error = (lse - expected_lse)[~empty].abs()
    if lse_error.numel():
        worst = lse_error.max().item()
        assert worst <= lse_bound, f"lse is off by {worst:.3g}, more than {lse_bound:.3g}"

    whole = cosine_difference(out.flatten(), expected_out.flatten()).item()
    assert whole <= COSINE_BOUND, f"cosine difference {whole:.3g} of the whole output is above {COSINE_BOUND:.3g}"
    difference = cosine_difference(out, expected_out)
    worst = difference.max().item()
    at = divmod(int(difference.argmax()), out.shape[2])
    assert worst <= ROW_COSINE_BOUND, (
        f"row {at[0]} head {at[1]}: cosine difference {worst:.3g} is above {ROW_COSINE_BOUND:.3g}"
    )

    error = (out.double() - expected_out.double()).abs()
    rms = expected_out.double().pow(2).mean(-1, keepdim=True).sqrt()
    excess = error - (ABSOLUTE_BOUND * rms + RELATIVE_BOUND * expected_out.double().abs())
    assert excess.max().item() <= 0, (
        f"{(excess > 0).sum().item()} of {out.numel()} values are off by more than {RELATIVE_BOUND:.3g} of themselves "
        f"and {ABSOLUTE_BOUND:.3g} of their row's rms; the worst by {error.max().item():.3g}"
    )


def assert_bitwise_equal(actual: tuple[torch.Tensor, ...], expected: tuple[torch.Tensor, ...], what: str) -> None:
    """Compare bytes, so that NaN equals itself and -0 does not equal 0."""
    for number, (x, y) in enumerate(zip(actual, expected, strict=True)):
        same = torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        assert same, f"{what}: result {number} differs in {(x != y).sum().item()} of {x.numel()} values"


def _refuse_nan(name: str, tensor: torch.Tensor) -> None:
    count = tensor.isnan().sum().item()
    assert count == 0, f"{name} has {count} NaN of {tensor.numel()}: poison leaked, or a value was never written"
