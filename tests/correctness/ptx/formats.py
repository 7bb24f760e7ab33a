"""Number formats as numpy has them not: bf16 and fp8 e4m3."""

from __future__ import annotations

import numpy as np

TINY = np.float32(2.0**-126)  # the smallest normal fp32


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """Bits uint16 to fp32, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bf16(values: np.ndarray) -> np.ndarray:
    """fp32 to bits uint16, to nearest even; NaN becomes 0x7FFF, as PTX's ``cvt`` has it."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    # In 64 bits: the largest bits plus half a step do not fit into 32.
    wide = bits.astype(np.uint64)
    rounded = (wide + np.uint64(0x7FFF) + ((wide >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded.astype(np.uint16))


def flushed(values: np.ndarray) -> np.ndarray:
    """Subnormal fp32 to a zero of their sign (``.ftz``)."""
    return np.where(np.abs(values) < TINY, np.copysign(np.float32(0), values), values)


def _e4m3(byte: int) -> float:
    sign, exponent, mantissa = (-1 if byte & 128 else 1), (byte >> 3) & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return np.nan
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


# OCP 8-bit floating point, E4M3: no infinities, one NaN of each sign. Every value is exact in fp16.
E4M3_AS_FP16_BITS = np.array([_e4m3(byte) for byte in range(256)], np.float16).view(np.uint16)
