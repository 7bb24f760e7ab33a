"""Zeros that a launch's programs count themselves done in. The last of them sets its counter back, so that they stay zeros.

Two launches that may run side by side must not share a counter: their arrivals would mix, and both would be wrong from
then on. Launches of one stream follow one another and share that stream's. A launch that is captured gets counters that
no other launch ever gets, since its graph may be replayed on any stream, beside any other; a graph does not run beside
itself. They lie in slabs that are zeroed, and the zeroing waited for, before any of them is handed out: a graph has no fill
of its own.

Which graphs still exist can't be known, so a captured launch's counters are never given again: a slab is made for those of
65,536 launches, 86 for each of 760 graphs of DeepSeek-V4-Flash's 43 layers. While a graph is captured no slab can be made.
Should the slabs run out then, or none have been made, because nothing was called before the capture, the launch takes memory
of the graph's own, which the graph zeroes at each replay: right, and 1 to 2 us slower. The next call outside a capture makes
another slab.
"""

from __future__ import annotations

import threading

import torch

APART = 4
"""Launches' counters begin 16 bytes apart: for a pointer that is aligned to less, Triton would compile a kernel once more."""
SLOTS = 65_536 * APART
"""Counters of a slab, 1 MiB."""
SPARE = SLOTS // 4
"""A call outside a capture leaves at least this many to the captures to come."""


class Counters:
    """The counters of one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        # Full slabs stay: graphs that were captured with them count in them.
        self._slabs: list[torch.Tensor] = []
        self._used = 0
        self._streams: dict[int, torch.Tensor] = {}

    def take(self, count: int) -> torch.Tensor:
        """At least ``count`` zeros, int32, for a launch on the current stream that leaves them zeros."""
        count = -(-count // APART) * APART
        on_gpu = self._device.type == "cuda"
        with self._lock:
            if on_gpu and torch.cuda.is_current_stream_capturing():
                if self._left() < count:
                    return torch.zeros(count, dtype=torch.int32, device=self._device)
                return self._next(count)
            stream = torch.cuda.current_stream(self._device).cuda_stream if on_gpu else 0
            if self._left() < SPARE:
                self._add_slab(SLOTS)
            if stream not in self._streams or self._streams[stream].numel() < count:
                # To the next power of two, so that counts that grow leave little behind.
                room = 1 << (count - 1).bit_length()
                if self._left() < room:
                    self._add_slab(room + SLOTS)
                self._streams[stream] = self._next(room)
            return self._streams[stream]

    def _left(self) -> int:
        return self._slabs[-1].numel() - self._used if self._slabs else 0

    def _next(self, count: int) -> torch.Tensor:
        self._used += count
        return self._slabs[-1][self._used - count : self._used]

    def _add_slab(self, slots: int) -> None:
        self._slabs.append(torch.zeros(slots, dtype=torch.int32, device=self._device))
        self._used = 0
        if self._device.type == "cuda":
            # The first launch to count in it may be on another stream than the one that zeroes it.
            torch.cuda.current_stream(self._device).synchronize()


_DEVICES: dict[torch.device, Counters] = {}


def take(device: torch.device, count: int) -> torch.Tensor:
    """At least ``count`` zeros of ``device`` for one launch on the current stream, which must leave them zeros."""
    owner = _DEVICES.get(device) or _DEVICES.setdefault(device, Counters(device))
    return owner.take(count)
