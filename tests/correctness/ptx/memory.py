"""Global memory as separate allocations, and a block's shared memory with its log of accesses."""

from __future__ import annotations

import numpy as np

from ptx.clocks import WORD, AccessLog, Clocks
from ptx.errors import BoundsError, RaceError
from ptx.registers import SHARED_BASE, Mask

_GLOBAL_BASE = 0x7F00_0000_0000  # far above 32 bits, so that an address cut to them is out of bounds
_APART = 4096  # bytes that belong to nobody, between two allocations
_ALIGNED = 256  # as CUDA's allocator aligns
POISON = 0xFF  # what shared memory holds at first: NaN as bf16, fp32 and fp8
_OUTSIDE, _READ_ONLY, _WRITABLE = 0, 1, 2


class GlobalMemory:
    """Copies of arrays, each at an address of its own; what a kernel wrote is read back from here."""

    def __init__(self) -> None:
        self._bytes = np.zeros(0, np.uint8)
        self._access = np.zeros(0, np.uint8)

    def add(self, contents: np.ndarray, writable: bool = False) -> int:
        """Place a flat array; return its address."""
        raw = contents.view(np.uint8)
        start = -(-(len(self._bytes) + _APART) // _ALIGNED) * _ALIGNED
        grown = np.zeros(start + len(raw), np.uint8)
        access = np.zeros(start + len(raw) + _APART, np.uint8)
        grown[: len(self._bytes)] = self._bytes
        access[: len(self._access)] = self._access
        grown[start:] = raw
        access[start : start + len(raw)] = _WRITABLE if writable else _READ_ONLY
        self._bytes, self._access = np.concatenate([grown, np.zeros(_APART, np.uint8)]), access
        return _GLOBAL_BASE + start

    def contents(self, address: int, dtype: type, count: int) -> np.ndarray:
        """``count`` values at an address, as they are now."""
        start = address - _GLOBAL_BASE
        return self._bytes[start : start + count * np.dtype(dtype).itemsize].copy().view(dtype)

    def load(self, addresses: np.ndarray, size: int, active: Mask) -> np.ndarray:
        """``size`` bytes a lane, [128, size] uint8; 0 in lanes that do not take part."""
        out = np.zeros((len(addresses), size), np.uint8)
        lanes, at = self._checked(addresses, size, active, _READ_ONLY)
        out[lanes] = self._bytes[at]
        return out

    def store(self, addresses: np.ndarray, data: np.ndarray, active: Mask) -> None:
        lanes, at = self._checked(addresses, data.shape[1], active, _WRITABLE)
        self._bytes[at] = data[lanes]

    def _checked(self, addresses: np.ndarray, size: int, active: Mask, least: int) -> tuple[np.ndarray, np.ndarray]:
        lanes = _lanes(addresses, size, active)
        start = addresses[lanes] - _GLOBAL_BASE
        at = start[:, None] + np.arange(size)
        outside = (start < 0) | (start + size > len(self._access))
        if not outside.any():
            outside = (self._access[at] < least).any(1)
        if outside.any():
            what = "a write" if least == _WRITABLE else "a read"
            raise BoundsError(
                f"{what} of {size} bytes outside of global memory at {int(addresses[lanes][outside][0]):#x}"
            )
        return lanes, at


class SharedMemory:
    """A block's ``size`` bytes of shared memory; an address counts from SHARED_BASE."""

    def __init__(self, size: int, clocks: Clocks) -> None:
        self.size = size
        self._bytes = np.full(-(-size // WORD) * WORD, POISON, np.uint8)
        self.log = AccessLog(size, clocks)

    def load(self, addresses: np.ndarray, size: int, active: Mask, warps: np.ndarray) -> np.ndarray:
        """``size`` bytes a lane, [128, size] uint8, read by warps [128]."""
        out = np.zeros((len(addresses), size), np.uint8)
        lanes, at = self._checked(addresses, size, active)
        self.log.read(*_words(at, warps[lanes]))
        out[lanes] = self._bytes[at]
        return out

    def store(self, addresses: np.ndarray, data: np.ndarray, active: Mask, warps: np.ndarray) -> None:
        lanes, at = self._checked(addresses, data.shape[1], active)
        self.log.write(*_words(at, warps[lanes]))
        self._bytes[at] = data[lanes]
        if (self._bytes[at] != data[lanes]).any():
            raise RaceError("lanes of one store write different values to the same bytes")

    def halves(self, addresses: np.ndarray) -> np.ndarray:
        """The 16 bits at each address, for wgmma; their words are logged by the caller."""
        at = addresses - SHARED_BASE
        if (at < 0).any() or (at + 2 > self.size).any():
            raise BoundsError("wgmma reads outside of shared memory")
        return self._bytes.view(np.uint16)[at >> 1]

    def _checked(self, addresses: np.ndarray, size: int, active: Mask) -> tuple[np.ndarray, np.ndarray]:
        lanes = _lanes(addresses, size, active)
        start = addresses[lanes] - SHARED_BASE
        if (start < 0).any() or (start + size > self.size).any():
            raise BoundsError(
                f"{size} bytes at {int(start.min())} to {int(start.max())} of {self.size} of shared memory"
            )
        return lanes, start[:, None] + np.arange(size)


def _lanes(addresses: np.ndarray, size: int, active: Mask) -> np.ndarray:
    lanes = np.arange(len(addresses)) if active is None else np.flatnonzero(active)
    if (addresses[lanes] % size).any():
        raise BoundsError(f"an access of {size} bytes at an address that is no multiple of them")
    return lanes


def _words(at: np.ndarray, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words of byte offsets [n, size], and the warp of each."""
    words = at[:, ::WORD] // WORD
    return words.ravel(), np.repeat(warps, words.shape[1])
