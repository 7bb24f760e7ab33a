"""A copy by the multiprocessors, sixteen bytes a load: what the card's memory can do for a kernel (edge, on Triton).

``Tensor.copy_`` between two buffers is a memcpy node in a captured graph, which an H200 serves at two thirds of this rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

TILES = ((2048, 4), (8192, 8))
"""Numbers of four bytes a program, and its warps: what is fastest differs between cards, and the fastest is the rate."""


@triton.jit  # type: ignore[untyped-decorator]
def perfgate_copy_kernel(source, target, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Copy TILE numbers a program; the buffers hold a whole number of tiles."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(target + at, tl.load(source + at))


def copy(source: torch.Tensor, target: torch.Tensor, tile: int, warps: int) -> torch.Tensor:
    """Copy ``source`` [n] int32 to ``target`` of the same size, n a multiple of ``tile``; returns ``target``."""
    launch: Any = perfgate_copy_kernel[(source.numel() // tile,)]
    launch(source, target, TILE=tile, num_warps=warps)
    return target
