"""The hyper-connection's weighted sum of streams and the RMSNorm that follows it, in one pass over x."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def dsv4_hc_combine_kernel(
    x_ptr,
    pre_ptr,
    weight_ptr,
    y_ptr,
    hidden,
    x_row,
    x_stream,
    pre_row,
    eps,
    STREAMS: tl.constexpr,
    NORM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for stream in tl.static_range(STREAMS):
        weight = tl.load(pre_ptr + row * pre_row + stream)
        values = tl.load(x_ptr + row * x_row + stream * x_stream + columns, mask=inside, other=0.0)
        total += weight * values.to(tl.float32)
    rounded = total.to(tl.bfloat16)
    if NORM:
        # SGLang's norm reads y after it was rounded to bf16; rounding here keeps the two forms comparable.
        value = rounded.to(tl.float32)
        scale = tl.rsqrt(tl.sum(value * value, axis=0) / hidden + eps)
        gain = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        rounded = (value * scale * gain).to(tl.bfloat16)
    tl.store(y_ptr + row * hidden + columns, rounded, mask=inside)


def combine(x: torch.Tensor, pre: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """y[t] = norm(sum_c pre[t, c] * x[t, c]).

    x [T, C, H] bf16 with unit stride in H, pre [T, C] fp32, weight [H] (None: no norm), y [T, H] bf16. Sums in fp32.
    Raises ValueError on another dtype or on a strided last dimension.
    """
    if x.dtype != torch.bfloat16 or pre.dtype != torch.float32:
        raise ValueError(f"x must be bfloat16 and pre float32, got {x.dtype} and {pre.dtype}")
    if x.stride(2) != 1 or pre.stride(1) != 1:
        raise ValueError(f"the last dimension must have unit stride, got x {x.stride()} and pre {pre.stride()}")
    rows, streams, hidden = x.shape
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    dsv4_hc_combine_kernel[(rows,)](
        x,
        pre,
        y if weight is None else weight,
        y,
        hidden,
        x.stride(0),
        x.stride(1),
        pre.stride(0),
        eps,
        STREAMS=streams,
        NORM=weight is not None,
        BLOCK=triton.next_power_of_2(hidden),
        num_warps=8,
    )
    return y


def combine_reference(x: torch.Tensor, pre: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """The same in plain torch, rounding where the kernel rounds."""
    y = (pre.unsqueeze(-1) * x.float()).sum(dim=1).to(x.dtype)
    if weight is None:
        return y
    value = y.float()
    scale = torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    return (value * scale * weight.float()).to(x.dtype)
