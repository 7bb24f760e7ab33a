"""The bytes of DeepSeek-V4's fp8 sparse-MLA cache ("fp8_ds_mla", V4 layout), stated once.

A page of ``page_size`` tokens is one run of bytes, padded at its end to a multiple of 576:

    [ token 0: 448 x fp8 e4m3 | 64 x bf16 ] [ token 1 ] ...      576 bytes a token
    [ token 0: 7 x ue8m0 | 1 pad ] [ token 1 ] ...                 8 bytes a token, after the last token's data
    [ padding ]

A ue8m0 byte b stands for 2**(b - 127) (b = 255 is NaN) and scales 64 of the 448 fp8 values; the 64 bf16 values (the
rotary part) are not scaled. The cache is handed around as a view ``[pages, page_size, 1, 584]`` of ``float8_e4m3fn`` or
``uint8`` whose ``stride(0)`` is the physical bytes of a page; ``584`` counts a token's bytes, it does not address them.
A token's index is ``page * page_size + slot``.

Source of the format: SGLang 0.5.15.post1, ``srt/layers/attention/flash_mla_sm120.py`` and the V4 memory pool.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

NOPE_DIM = 448
ROPE_DIM = 64
HEAD_DIM = NOPE_DIM + ROPE_DIM
GROUP = 64  # fp8 values that share one scale
SCALES = NOPE_DIM // GROUP
DATA_BYTES = NOPE_DIM + 2 * ROPE_DIM
SCALE_BYTES = 8
TOKEN_BYTES = DATA_BYTES + SCALE_BYTES
FP8_MAX = 448.0
UE8M0_BIAS = 127

WINDOW_PAGE_SIZE = 256
C4_PAGE_SIZE = 64
C128_PAGE_SIZE = 2

# Kernels read 16 bytes at a time, so that pages have to start at multiples of 16.
ALIGNMENT = 16


class LayoutError(ValueError):
    """A tensor is not a cache in the V4 layout; the message says what is wrong and what was expected."""


@dataclass(frozen=True)
class CacheGeometry:
    """What addressing needs to know of a cache: number of pages, tokens a page, physical bytes a page."""

    pages: int
    page_size: int
    page_stride: int


def page_bytes(page_size: int) -> int:
    """Physical bytes of a page: 149,760 for 256 tokens, 37,440 for 64, 1,728 for 2."""
    return -(-page_size * TOKEN_BYTES // DATA_BYTES) * DATA_BYTES


def view_pages(buffer: torch.Tensor, page_size: int, page_stride: int | None = None) -> torch.Tensor:
    """View a flat uint8 buffer as a cache ``[pages, page_size, 1, 584]``, as many pages as fit.

    Raises LayoutError if the buffer is not flat, not uint8 or shorter than a page.
    """
    stride = page_bytes(page_size) if page_stride is None else page_stride
    if buffer.dtype != torch.uint8 or buffer.dim() != 1 or buffer.stride(0) != 1:
        raise LayoutError(
            f"a cache is viewed from a flat uint8 buffer, got {buffer.dtype} of shape {tuple(buffer.shape)}"
        )
    pages = buffer.numel() // stride
    if pages < 1 or stride < page_size * TOKEN_BYTES:
        raise LayoutError(
            f"{buffer.numel()} bytes at {stride} bytes a page hold no page of {page_size} tokens "
            f"({page_size * TOKEN_BYTES} bytes and padding)"
        )
    return buffer.as_strided((pages, page_size, 1, TOKEN_BYTES), (stride, TOKEN_BYTES, TOKEN_BYTES, 1))


def allocate(pages: int, page_size: int, device: torch.device | str = "cpu", fill: int = 0) -> torch.Tensor:
    """A new cache ``[pages, page_size, 1, 584]`` uint8 with every byte, padding included, set to ``fill``."""
    buffer = torch.full((pages * page_bytes(page_size),), fill, dtype=torch.uint8, device=device)
    return view_pages(buffer, page_size)


def geometry(cache: torch.Tensor, name: str = "k_cache") -> CacheGeometry:
    """Check that ``cache`` is a V4 cache and return its geometry.

    Raises LayoutError for any other shape, dtype, stride, alignment, or a page size that is no power of two.
    """
    if cache.dtype not in (torch.float8_e4m3fn, torch.uint8):
        raise LayoutError(f"{name} has dtype {cache.dtype}; the V4 layout is float8_e4m3fn or uint8 bytes")
    if cache.dim() != 4 or cache.shape[2] != 1 or cache.shape[3] != TOKEN_BYTES:
        raise LayoutError(
            f"{name} has shape {tuple(cache.shape)}; the V4 layout is [pages, page_size, 1, {TOKEN_BYTES}] "
            "(V3.2's 656 bytes a token and V4.1's interleaved layout are not supported)"
        )
    pages, page_size = cache.shape[0], cache.shape[1]
    if page_size < 1 or page_size & (page_size - 1):
        raise LayoutError(f"{name} has {page_size} tokens a page; V4's page sizes are powers of two (256, 64, 2)")
    page_stride = cache.stride(0) if pages > 1 else max(cache.stride(0), page_size * TOKEN_BYTES)
    if cache.stride(3) != 1 or (page_size > 1 and cache.stride(1) != TOKEN_BYTES):
        raise LayoutError(f"{name} has strides {cache.stride()}; the last must be 1 and the second {TOKEN_BYTES}")
    if page_stride < page_size * TOKEN_BYTES:
        raise LayoutError(f"{name} has {page_stride} bytes a page; {page_size} tokens take {page_size * TOKEN_BYTES}")
    if page_stride % ALIGNMENT or cache.data_ptr() % ALIGNMENT:
        raise LayoutError(
            f"{name} starts at address {cache.data_ptr():#x} with {page_stride} bytes a page; "
            f"both must be multiples of {ALIGNMENT}"
        )
    return CacheGeometry(pages, page_size, page_stride)


def pack(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise ``rows`` [n, 512] (bf16 or fp32) to (data [n, 576] uint8, scales [n, 8] uint8).

    A group's scale is the smallest power of two that brings its largest magnitude to 448 or less.
    Raises LayoutError for another width.
    """
    if rows.dim() != 2 or rows.shape[1] != HEAD_DIM:
        raise LayoutError(f"rows to pack have shape {tuple(rows.shape)}; expected [n, {HEAD_DIM}]")
    groups = rows[:, :NOPE_DIM].double().view(-1, SCALES, GROUP)
    peak = groups.abs().amax(dim=-1).clamp(min=2.0**-126)
    exponent = torch.ceil(torch.log2(peak / FP8_MAX)).clamp(-UE8M0_BIAS, UE8M0_BIAS)
    nope = (groups / torch.exp2(exponent)[..., None]).clamp(-FP8_MAX, FP8_MAX).float().to(torch.float8_e4m3fn)
    return pack_exact(nope.view(-1, NOPE_DIM), (exponent + UE8M0_BIAS).to(torch.uint8), rows[:, NOPE_DIM:])


def pack_exact(nope: torch.Tensor, scales: torch.Tensor, rope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay out given parts: nope [n, 448] float8_e4m3fn, scales [n, 7] uint8 (ue8m0), rope [n, 64] (any float)."""
    rope_bytes = rope.to(torch.bfloat16).contiguous().view(torch.uint8).view(-1, 2 * ROPE_DIM)
    data = torch.cat([nope.contiguous().view(torch.uint8), rope_bytes], dim=1)
    padded = torch.zeros(scales.shape[0], SCALE_BYTES, dtype=torch.uint8, device=scales.device)
    padded[:, :SCALES] = scales
    return data, padded


def write(cache: torch.Tensor, tokens: torch.Tensor, data: torch.Tensor, scales: torch.Tensor) -> None:
    """Store packed rows at token indices ``tokens`` [n] int64 of ``cache``, touching no other byte."""
    pages, data_at, scales_at = addresses(geometry(cache), tokens)
    physical = physical_bytes(cache)
    physical[pages[:, None], data_at[:, None] + torch.arange(DATA_BYTES, device=cache.device)] = data
    physical[pages[:, None], scales_at[:, None] + torch.arange(SCALE_BYTES, device=cache.device)] = scales


def unpack(cache: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Dequantise tokens [n] int64 of ``cache`` to fp32 [n, 512]; reads no other token."""
    pages, data_at, scales_at = addresses(geometry(cache), tokens)
    physical = physical_bytes(cache)
    data = physical[pages[:, None], data_at[:, None] + torch.arange(DATA_BYTES, device=cache.device)]
    scale = physical[pages[:, None], scales_at[:, None] + torch.arange(SCALES, device=cache.device)]
    factor = torch.exp2(scale.double() - UE8M0_BIAS)
    factor = torch.where(scale == 255, torch.nan, factor)
    nope = data[:, :NOPE_DIM].contiguous().view(torch.float8_e4m3fn).double().view(-1, SCALES, GROUP)
    rope = data[:, NOPE_DIM:].contiguous().view(torch.bfloat16).float()
    return torch.cat([(nope * factor[..., None]).view(-1, NOPE_DIM).float(), rope], dim=1)


def physical_bytes(cache: torch.Tensor) -> torch.Tensor:
    """The bytes of ``cache``'s pages as a view [pages, page_size * 584] uint8: data first, then scales."""
    shape = geometry(cache)
    used = shape.page_size * TOKEN_BYTES
    return cache.view(torch.uint8).as_strided((shape.pages, used), (shape.page_stride, 1))


def addresses(shape: CacheGeometry, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Page of each token, and where in the page its 576 bytes of data and its 8 bytes of scales start."""
    tokens = tokens.long()
    slot = tokens % shape.page_size
    return tokens // shape.page_size, slot * DATA_BYTES, shape.page_size * DATA_BYTES + slot * SCALE_BYTES
