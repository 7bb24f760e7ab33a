"""The hyper-connection pre-norm equals both oracles to the precision of an fp32 sum."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels import hc_prenorm, hyper_connection
from dsv4_kernels.card import CARDS
from dsv4_kernels.hyper_connection_table import TABLE
from dsv4_kernels.reference import hyper_connection as oracle
from hypothesis import given
from hypothesis import strategies as st
from kit.cache import poisoned_memory
from kit.compare import assert_bitwise_equal
from kit.strategies_hc import HcCase, build, hc_cases

NATIVE = torch.cuda.is_available()
CASES = hc_cases(most_tokens=5000, widths=(128, 4096, 16_384)) if NATIVE else hc_cases()
# Of the root of the sum of squared products. Sums of 16,384 fp32 products in two orders differ by up to 2**-18.8 of it
# (measured); weights rounded to tf32 would be off by 2**-12.7.
BOUND = 2**-16.5


def assert_mixes_close(mixes: torch.Tensor, x: torch.Tensor, fn: torch.Tensor, eps: float) -> None:
    wide = x.float()
    root_mean_square = (wide.square().mean(-1, keepdim=True) + eps).sqrt()
    terms = (wide.square() @ fn.square().T).sqrt() / root_mean_square
    for expected in (oracle.hc_prenorm(x, fn, eps), oracle.hc_prenorm_rounded(x, fn, eps)):
        assert mixes.shape == expected.shape
        assert mixes.dtype == torch.float32
        bad = ~((mixes - expected).abs() <= BOUND * terms)
        assert not bad.any(), (
            f"{bad.sum().item()} of {bad.numel()} mixes off, the first at token {int(bad.nonzero()[0, 0])}: "
            f"{mixes[bad][0].item():.8g} instead of {expected[bad][0].item():.8g}"
        )


def mixes_of(x: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    with poisoned_memory():
        return hc_prenorm(x, fn, eps)


@given(case=CASES)
def test_equals_both_oracles(case: HcCase, device: torch.device) -> None:
    x, fn, eps = build(case, device)
    assert_mixes_close(mixes_of(x, fn, eps), x, fn, eps)


def test_the_layers_own_shape(device: torch.device) -> None:
    x, fn, eps = build(HcCase(tokens=3, width=16_384), device)
    assert_mixes_close(mixes_of(x, fn, eps), x, fn, eps)


CONFIGS = [
    pytest.param(config, id=f"{card.name}-{config.block_tokens}-{config.splits}")
    for card in CARDS
    for config in TABLE[card.name]
]


@pytest.mark.parametrize("config", CONFIGS)
def test_every_configuration_equals_both_oracles(config, device: torch.device) -> None:
    # A width of fewer blocks than splits, so that some of them are empty.
    for tokens in (2, config.block_tokens + 1):
        x, fn, eps = build(HcCase(tokens=tokens, width=384), device)
        mixes = torch.full((x.shape[0], fn.shape[0]), torch.nan, device=device)
        with poisoned_memory():
            hyper_connection._launch(config, x, fn, eps, mixes)
        assert_mixes_close(mixes, x, fn, eps)


# What is left to round where a sum has one product: the sum of the weight's three parts, the mean and the scaling (2**-24
# each), and rsqrt (2**-22.9, PTX ISA). A weight without its lowest 8 bits is off by some 2**-17.
BITS_BOUND = 2**-20


@given(seed=st.integers(0, 2**16), place=st.integers(0, 127))
def test_weights_keep_all_their_bits(seed: int, place: int, device: torch.device) -> None:
    rng = torch.Generator().manual_seed(seed)
    value, weights = torch.randn((), generator=rng).bfloat16(), torch.randn(24, generator=rng)
    x = torch.zeros(1, 128, dtype=torch.bfloat16, device=device)
    fn = torch.zeros(24, 128, device=device)
    x[0, place], fn[:, place] = value.to(device), weights.to(device)
    exact = weights.double() * value.double() / (value.double().square() / 128 + 1e-6).sqrt()
    error = (mixes_of(x, fn, 1e-6)[0].double().cpu() / exact - 1).abs().max().item()
    assert error <= BITS_BOUND, f"a weight lost some of its 24 bits: off by {error:.3g}"


@pytest.mark.field_case("K27")
@pytest.mark.parametrize("tokens", [1, 17])
def test_twenty_launches_agree_bitwise(tokens: int, device: torch.device) -> None:
    x, fn, eps = build(HcCase(tokens=tokens), device)
    first = mixes_of(x, fn, eps)
    for _ in range(19):
        assert_bitwise_equal((mixes_of(x, fn, eps),), (first,), "a repeated launch")


def test_x_is_not_copied_to_fp32(device: torch.device) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    made = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dtype == torch.float32:
                made.append((result.numel(), str(func)))
            return result

    x, fn, eps = build(HcCase(tokens=65, width=4096), device)
    with Watch():
        hc_prenorm(x, fn, eps)
    size, maker = max(made)
    assert size < x.numel(), f"{maker} made {size} fp32 elements, as many as x has"


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        (lambda x, fn: (x.float(), fn), TypeError, "float32"),
        (lambda x, fn: (x, fn.bfloat16()), TypeError, "bfloat16"),
        (lambda x, fn: (x[:, :100], fn[:, :100]), ValueError, "100"),
        (lambda x, fn: (x, fn[:, :128]), ValueError, "128"),
        (lambda x, fn: (x, fn.repeat(2, 1)), ValueError, "48 outputs"),
        (lambda x, fn: (x.T.contiguous().T, fn), ValueError, "contiguous"),
    ],
)
def test_what_the_kernel_does_not_take_is_refused_by_name(change, error, word, device: torch.device) -> None:
    x, fn, eps = build(HcCase(tokens=2), device)
    with pytest.raises(error, match=word):
        hc_prenorm(*change(x, fn), eps)
