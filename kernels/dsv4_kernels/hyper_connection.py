"""The hyper-connection pre-norm linear: bf16 activations read once, fp32 weights at full precision, on tensor cores.

A bf16 activation times an fp32 weight is computed as three bf16 products: the weight is cut into three bf16 parts
whose sum is the weight. So the error is that of an fp32 sum, where tf32 would round the weights to 11 bits. The sum of
squares comes from the same read. Splits of the width are added in a fixed order: repeated calls agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

from .card import INTERPRETING, Card, CompileCase, card_for
from .hyper_connection_table import TABLE, HcConfig, choose
from .pdl import launch_options, let_next_start, wait_for_previous

LANES = 32  # outputs are padded to this, and the last lane carries the sum of squares
WIDTH_MULTIPLE = 128


@triton.jit
def _leading_bits(value):
    """Cut fp32 down to the 8 significant bits of bf16. The remainder is exact, so three cuts hold all 24."""
    return (value.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _scaled(sums, width, eps, LANES: tl.constexpr):
    """Turn sums (the last lane that of squares) into mixes: divide by the root of the mean square plus eps."""
    lane = tl.arange(0, LANES)
    squares = tl.sum(tl.where(lane[None, :] == LANES - 1, sums, 0.0), 1)
    return sums * tl.rsqrt(squares / width + eps)[:, None]


@triton.jit(do_not_specialize=("tokens", "outputs", "out_stride"))
def dsv4_hc_prenorm_sum_kernel(
    x_ptr, fn_ptr, out_ptr, part_ptr, tokens, outputs, width, eps, x_stride, fn_stride, out_stride,
    BLOCK_TOKENS: tl.constexpr, BLOCK_WIDTH: tl.constexpr, SPLITS: tl.constexpr, LANES: tl.constexpr,
    PDL: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """One program: one split of the width of a block of tokens."""
    let_next_start(PDL)
    token = tl.program_id(0) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    split = tl.program_id(1)
    lane = tl.arange(0, LANES)
    column = tl.arange(0, BLOCK_WIDTH)
    x_block = x_ptr + token.to(tl.int64)[:, None] * x_stride + column[None, :]
    fn_block = fn_ptr + lane[:, None] * fn_stride + column[None, :]
    steps = width // BLOCK_WIDTH
    share = (steps + SPLITS - 1) // SPLITS
    sums = tl.zeros((BLOCK_TOKENS, LANES), tl.float32)
    squares = tl.zeros((BLOCK_TOKENS, BLOCK_WIDTH), tl.float32)
    for step in range(split * share, tl.minimum(split * share + share, steps)):
        x = tl.load(x_block + step * BLOCK_WIDTH, mask=token[:, None] < tokens, other=0.0)
        weight = tl.load(fn_block + step * BLOCK_WIDTH, mask=lane[:, None] < outputs, other=0.0)
        high = _leading_bits(weight)
        middle = _leading_bits(weight - high)
        low = weight - high - middle
        if INTERPRET:
            x = x.to(tl.float32)
        else:
            high = high.to(tl.bfloat16)
            middle = middle.to(tl.bfloat16)
            low = low.to(tl.bfloat16)
        # Hopper's tensor cores cut off what an accumulator can't hold instead of rounding it, and over 16,384 columns
        # that adds up. So a block's sum is taken out of them, smallest parts first, and added in fp32.
        block = tl.dot(x, tl.trans(low))
        block = tl.dot(x, tl.trans(middle), block)
        block = tl.dot(x, tl.trans(high), block)
        sums += block
        wide = x.to(tl.float32)
        squares += wide * wide
    sums = tl.where(lane[None, :] == LANES - 1, tl.sum(squares, 1)[:, None], sums)
    if SPLITS == 1:
        mixes = _scaled(sums, width, eps, LANES)
        place = token.to(tl.int64)[:, None] * out_stride + lane[None, :]
        tl.store(out_ptr + place, mixes, mask=(token[:, None] < tokens) & (lane[None, :] < outputs))
    else:
        place = (split.to(tl.int64) * tokens + token)[:, None] * LANES + lane[None, :]
        tl.store(part_ptr + place, sums, mask=token[:, None] < tokens)


@triton.jit(do_not_specialize=("tokens", "outputs", "out_stride"))
def dsv4_hc_prenorm_merge_kernel(
    part_ptr, out_ptr, tokens, outputs, width, eps, out_stride,
    MERGE_TOKENS: tl.constexpr, SPLITS: tl.constexpr, LANES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: the splits of MERGE_TOKENS tokens, added up in the splits' order."""
    wait_for_previous(PDL)
    first = tl.program_id(0).to(tl.int64) * MERGE_TOKENS
    entry = tl.arange(0, MERGE_TOKENS * LANES)
    split = tl.arange(0, SPLITS)
    place = (first + split.to(tl.int64)[:, None] * tokens) * LANES + entry[None, :]
    live = first + entry[None, :] // LANES < tokens
    parts = tl.load(part_ptr + place, mask=live, other=0.0)
    sums = tl.reshape(tl.sum(parts, 0), (MERGE_TOKENS, LANES))
    mixes = _scaled(sums, width, eps, LANES)
    token = first + tl.arange(0, MERGE_TOKENS)
    lane = tl.arange(0, LANES)
    mask = (token[:, None] < tokens) & (lane[None, :] < outputs)
    tl.store(out_ptr + token[:, None] * out_stride + lane[None, :], mixes, mask=mask)


def hc_prenorm(x: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    """Mix the hyper-connection streams: (x @ fn.T) * rsqrt(mean(x**2) + eps), a token a row.

    x        [T, K] bfloat16, rows contiguous (K = 4 * 4096 for DeepSeek-V4); read once, never copied to fp32
    fn       [N, K] float32, finite, rows contiguous, N up to 31 (24 in the layers, 4 in the head)
    eps      added to the mean square
    returns  [T, N] float32, with the error of an fp32 sum: fn counts with its 24 bits, x is exact

    K is a multiple of 128. Repeated calls agree bit for bit; the order of the sum depends on T alone.
    Raises ValueError for a shape or stride, TypeError for a dtype, UnsupportedDevice for a card without a table.
    Formula: the fp32 branch of SGLang 0.5.15, srt/models/deepseek_v4.py, DeepseekV4DecoderLayer.hc_pre.
    """
    _check(x, fn)
    card, _ = card_for(x.device)
    mixes = torch.empty((x.shape[0], fn.shape[0]), dtype=torch.float32, device=x.device)
    if x.shape[0]:
        _launch(choose(card.table, x.shape[0]), x, fn, eps, mixes)
    return mixes


def _launch(config: HcConfig, x: torch.Tensor, fn: torch.Tensor, eps: float, mixes: torch.Tensor) -> None:
    (tokens, width), outputs = x.shape, fn.shape[0]
    sums = mixes
    if config.splits > 1:
        sums = torch.empty((config.splits, tokens, LANES), dtype=torch.float32, device=x.device)
    partial_sums(config, x, fn, eps, mixes, sums)
    if config.splits > 1:
        dsv4_hc_prenorm_merge_kernel[(triton.cdiv(tokens, config.merge_tokens),)](
            sums, mixes, tokens, outputs, width, eps, mixes.stride(0), **_merge_constexprs(config), num_warps=4,
            **launch_options(config.pdl),
        )  # fmt: skip


def partial_sums(
    config: HcConfig, x: torch.Tensor, fn: torch.Tensor, eps: float, mixes: torch.Tensor, sums: torch.Tensor
) -> None:
    """The first launch: each split's sums [splits, T, LANES], the last lane that of squares; of one split the ``mixes``."""
    (tokens, width), outputs = x.shape, fn.shape[0]
    grid = (triton.cdiv(tokens, config.block_tokens), config.splits)
    dsv4_hc_prenorm_sum_kernel[grid](
        x, fn, mixes, sums, tokens, outputs, width, eps, x.stride(0), fn.stride(0), mixes.stride(0),
        **_sum_constexprs(config), num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip


def _sum_constexprs(config: HcConfig, interpret: bool = INTERPRETING) -> dict[str, Any]:
    return {
        "BLOCK_TOKENS": config.block_tokens,
        "BLOCK_WIDTH": config.block_width,
        "SPLITS": config.splits,
        "LANES": LANES,
        "PDL": config.pdl and config.splits > 1,
        "INTERPRET": interpret,
    }


def _merge_constexprs(config: HcConfig) -> dict[str, Any]:
    return {"MERGE_TOKENS": config.merge_tokens, "SPLITS": config.splits, "LANES": LANES, "PDL": config.pdl}


def _check(x: torch.Tensor, fn: torch.Tensor) -> None:
    if x.dtype != torch.bfloat16 or fn.dtype != torch.float32:
        raise TypeError(f"x is {x.dtype} and fn {fn.dtype}; the kernel takes bfloat16 and float32")
    if x.dim() != 2 or fn.dim() != 2 or x.shape[1] != fn.shape[1]:
        raise ValueError(f"x is {tuple(x.shape)} and fn {tuple(fn.shape)}; the kernel takes [T, K] and [N, K]")
    if x.shape[1] == 0 or x.shape[1] % WIDTH_MULTIPLE:
        raise ValueError(f"the width K is {x.shape[1]}; it must be a multiple of {WIDTH_MULTIPLE}")
    if not 1 <= fn.shape[0] < LANES:
        raise ValueError(f"fn has {fn.shape[0]} outputs; the kernel takes 1 to {LANES - 1}")
    if x.stride(1) != 1 or fn.stride(1) != 1:
        raise ValueError(f"x has strides {x.stride()} and fn {fn.stride()}; their rows must be contiguous")
    if x.device != fn.device:
        raise ValueError(f"x lies on {x.device} and fn on {fn.device}; both must be on one device")


def compile_cases(card: Card) -> Iterator[CompileCase]:
    """Yield every compilation that a launch on `card` can ask for."""
    pointers = {"x_ptr": "*bf16", "fn_ptr": "*fp32", "out_ptr": "*fp32", "part_ptr": "*fp32"}
    for config in TABLE[card.name]:
        shape = f"tokens={config.block_tokens},width={config.block_width},splits={config.splits}"
        types = pointers | {"eps": "fp32"}
        cases = [
            (
                "sum",
                dsv4_hc_prenorm_sum_kernel,
                _sum_constexprs(config, interpret=False),
                config.num_warps,
                config.num_stages,
            )
        ]
        if config.splits > 1:
            cases.append(("merge", dsv4_hc_prenorm_merge_kernel, _merge_constexprs(config), 4, 3))
        for name, kernel, constexprs, num_warps, num_stages in cases:
            arguments = kernel.arg_names
            yield CompileCase(
                name=f"hc_{name}[{shape},warps={num_warps},stages={num_stages}{',pdl' * config.pdl}]",
                kernel=kernel,
                signature={a: "constexpr" if a in constexprs else types.get(a, "i32") for a in arguments},
                constexprs=constexprs,
                num_warps=num_warps,
                num_stages=num_stages,
                aligned=tuple(a for a in arguments if a.endswith("_ptr") or a in ("width", "x_stride", "fn_stride")),
                tensor_cores=name == "sum",
                # Addresses of the loop's loads, six registers on sm_120: read once a step of 64 columns.
                max_spill_bytes=32,
            )
