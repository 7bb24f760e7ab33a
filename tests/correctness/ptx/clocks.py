"""Which warp knows of what: vector clocks, the log of shared memory's accesses, and the barriers that order warps.

A warp counts its releases. What it did in its period n is known to a warp that has, through barriers, heard of period n;
an access that conflicts with another which its warp has not heard of is a race, whether or not it went wrong this time
(Lamport 1978; FastTrack, Flanagan and Freund, PLDI 2009). A warp counts as one thread: its lanes are not told apart.
"""

from __future__ import annotations

import numpy as np

from ptx.errors import EmulationError, MissingFenceError, RaceError

WORD = 4  # bytes; a smaller access counts for its whole word
NOBODY = -1


class Clocks:
    """``known[w, v]``: the last period of warp v that warp w has heard of; ``fenced[w, v]``: the last that v has fenced."""

    def __init__(self, warps: int) -> None:
        self.known = np.eye(warps, dtype=np.int64)
        self.fenced = np.zeros((warps, warps), np.int64)

    def meet(self, warps: slice) -> None:
        """All of these warps wait for each other: ``bar.sync``."""
        self.known[warps] = self.known[warps].max(0)
        self.fenced[warps] = self.fenced[warps].max(0)
        self._next(warps)

    def fence(self, warps: slice) -> None:
        """What these warps have written so far may be read by the asynchronous proxy, by whoever hears of it from here on."""
        for warp in range(warps.start, warps.stop):
            self.fenced[warp, warp] = self.known[warp, warp]
        self._next(warps)

    def release(self, warp: int) -> tuple[np.ndarray, np.ndarray]:
        """What a warp tells those who will wait for it."""
        told = self.known[warp].copy(), self.fenced[warp].copy()
        self._next(slice(warp, warp + 1))
        return told

    def acquire(self, warps: slice, told: tuple[np.ndarray, np.ndarray]) -> None:
        np.maximum(self.known[warps], told[0], out=self.known[warps])
        np.maximum(self.fenced[warps], told[1], out=self.fenced[warps])

    def _next(self, warps: slice) -> None:
        for warp in range(warps.start, warps.stop):
            self.known[warp, warp] += 1


class MBarrier:
    """An mbarrier: phases of ``count`` arrivals. PTX ISA, "mbarrier"."""

    def __init__(self, count: int, warp: int, clocks: Clocks) -> None:
        self.count = self.pending = count
        self.phase = 0
        self._born = warp, int(clocks.known[warp, warp])
        self._arriving = np.zeros_like(clocks.known[0]), np.zeros_like(clocks.known[0])
        self.told = self._arriving

    def require_known(self, warps: slice, clocks: Clocks) -> None:
        """Raise RaceError unless these warps know that the barrier has been initialised."""
        warp, period = self._born
        if (clocks.known[warps, warp] < period).any():
            raise RaceError("an mbarrier is used by a warp that nothing has told of its initialisation")

    def arrive(self, told: tuple[np.ndarray, np.ndarray]) -> None:
        self._arriving = np.maximum(self._arriving[0], told[0]), np.maximum(self._arriving[1], told[1])
        self.pending -= 1
        if self.pending == 0:
            self.phase += 1
            self.pending = self.count
            self.told = self._arriving

    def passed(self, parity: int) -> bool:
        """Whether the phase of this parity is over, as ``try_wait.parity`` asks: the current one has the other parity."""
        return self.phase & 1 != parity


class AccessLog:
    """Who wrote each word of shared memory last and in which period, who read it, and which wgmma still reads it."""

    def __init__(self, size: int, clocks: Clocks) -> None:
        words = -(-size // WORD)
        self._clocks = clocks
        self._writer = np.full(words, NOBODY, np.int64)
        self._written = np.zeros(words, np.int64)
        self._read = np.zeros((words, len(clocks.known)), np.int64)
        self._in_flight = np.zeros(words, np.int64)

    def read(self, words: np.ndarray, warps: np.ndarray) -> None:
        """Warps [n] read words [n]."""
        known, writer = self._clocks.known, self._writer[words]
        # A vector load may take along a word that nothing has written and nobody uses.
        _refuse("read", words, (writer != NOBODY) & (self._written[words] > known[warps, writer]))
        self._read[words, warps] = known[warps, warps]

    def write(self, words: np.ndarray, warps: np.ndarray) -> None:
        """Warps [n] write words [n]; several may write the same in one instruction, which the caller sees to."""
        known, writer = self._clocks.known, self._writer[words]
        _refuse("overwritten", words, (writer != NOBODY) & (self._written[words] > known[warps, writer]))
        _refuse("overwritten where it was read", words, (self._read[words] > known[warps]).any(1))
        _refuse("overwritten while wgmma reads it", words, self._in_flight[words] > 0)
        self._writer[words] = warps
        self._written[words] = known[warps, warps]

    def start_product(self, words: np.ndarray, warps: slice) -> None:
        """A warpgroup's wgmma begins to read words [n], through the asynchronous proxy."""
        written, writer = self._written[words], self._writer[words]
        nothing = writer == NOBODY
        if nothing.any():
            raise EmulationError(f"wgmma reads {_where(words, nothing)} of shared memory, which nothing has written")
        _refuse("read by wgmma", words, written > self._clocks.known[warps].min(0)[writer])
        late = written > self._clocks.fenced[warps].min(0)[writer]
        if late.any():
            raise MissingFenceError(f"wgmma reads {_where(words, late)} without a fence.proxy.async of its writer")
        self._in_flight[words] += 1

    def end_product(self, words: np.ndarray, warps: slice) -> None:
        """That wgmma has been waited for."""
        self._in_flight[words] -= 1
        for warp in range(warps.start, warps.stop):
            self._read[words, warp] = self._clocks.known[warp, warp]


def _refuse(what: str, words: np.ndarray, racing: np.ndarray) -> None:
    if racing.any():
        raise RaceError(
            f"{_where(words, racing)} of shared memory is {what}, and nothing orders it after what another did"
        )


def _where(words: np.ndarray, chosen: np.ndarray) -> str:
    found = words[chosen]
    return f"byte {int(found.min()) * WORD} ({len(np.unique(found))} words in all)"
