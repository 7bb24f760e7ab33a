"""What a card can do, measured now: bytes and matrix FLOPs a second, and the time of an empty graph (edge, on torch)."""

from __future__ import annotations

import time
from typing import Any

import torch

from perfgate.kernelbench.timing import Call, median_us

COPIED = 1 << 30
"""Bytes of each of the two buffers: far more than the L2."""

MATRIX = 8192
REPLAYS = 20


def measure(device: torch.device) -> dict[str, Any]:
    """Rates of this card as ``roofline.restore`` reads them. What can't be measured is named in a ``…_fault``."""
    began = time.monotonic()
    found: dict[str, Any] = _copies(device)
    flops = 2 * MATRIX**3
    a, b = (torch.randn(MATRIX, MATRIX, device=device).bfloat16() for _ in range(2))
    found["bf16"] = flops / _seconds(lambda: a @ b, device)
    try:
        fp8 = torch.float8_e4m3fn
        x, y, one = a.to(fp8), b.to(fp8).t().contiguous().t(), torch.ones((), device=device)
        found["fp8"] = flops / _seconds(
            lambda: torch._scaled_mm(x, y, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), device
        )
    except (RuntimeError, AttributeError, TypeError, ValueError) as fault:
        # Torch's private entry: where it is gone, bf16's rate stands in, and the table says so.
        found["fp8_fault"] = _first_line(fault)
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        wide, other = a.float(), b.float()
        found["tf32"] = flops / _seconds(lambda: wide @ other, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    nothing = torch.zeros(1, device=device)
    found["floor_us"] = median_us([nothing.zero_], device)
    found["source"] = f"measured in this run, in {time.monotonic() - began:.1f} s"
    return found


def _copies(device: torch.device) -> dict[str, Any]:
    """Bytes a second, read and written, of the fastest copy, and of each that was tried.

    Torch's own is a memcpy node in a captured graph; the kernel's loads and stores are what a kernel can get.
    """
    source = torch.arange(COPIED // 4, dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    copies = {"memcpy": 2 * COPIED / _seconds(lambda: target.copy_(source), device)}
    found: dict[str, Any] = {"copies": copies}
    try:
        from perfgate.kernelbench.copy_kernel import TILES, copy

        for tile, warps in TILES:
            seconds = _seconds(lambda t=tile, w=warps: copy(source, target, t, w), device)  # type: ignore[misc]
            if not torch.equal(source, target):
                raise RuntimeError(f"the kernel of {tile} copies wrongly")
            copies[f"kernel of {tile}"] = 2 * COPIED / seconds
    except Exception as fault:
        # The other rate is still one, and the table then says what is missing: no kernel goes untimed for it.
        found["copy_fault"] = f"{type(fault).__name__}: {_first_line(fault)}"
    return {"bytes": max(copies.values()), **found}


def _seconds(call: Call, device: torch.device) -> float:
    return median_us([call], device, REPLAYS) / 1e6


def _first_line(fault: Exception) -> str:
    return (str(fault).splitlines() or [""])[0][:200]
