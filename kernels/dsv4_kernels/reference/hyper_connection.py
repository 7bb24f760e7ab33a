"""Oracles of the hyper-connection pre-norm linear in plain torch, chunked over tokens."""

from __future__ import annotations

import torch

CHUNK = 256


def _each_chunk(x: torch.Tensor, eps: float, linear) -> torch.Tensor:
    parts = []
    for chunk in x.split(CHUNK):
        wide = chunk.float()
        parts.append(linear(wide) * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps))
    return torch.cat(parts)


def hc_prenorm(x: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    """The fp32 oracle, with the arguments and result of `dsv4_kernels.hc_prenorm`."""
    return _each_chunk(x, eps, lambda wide: wide @ fn.T)


def bf16_parts(fn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cut fp32 into three bf16 numbers (as fp32) of 8 significant bits each, whose sum is the value."""
    high = _leading_bits(fn)
    middle = _leading_bits(fn - high)
    return high, middle, fn - high - middle


def _leading_bits(value: torch.Tensor) -> torch.Tensor:
    return (value.contiguous().view(torch.int32) & -65536).view(torch.float32)


def hc_prenorm_rounded(x: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    """The oracle that rounds where the kernel rounds: each weight as three bf16 parts, products summed in fp32."""
    high, middle, low = bf16_parts(fn)
    return _each_chunk(x, eps, lambda wide: wide @ low.T + wide @ middle.T + wide @ high.T)
