"""Device functions of the exact top-k: ordered keys, the search for the k-th key, numbering, and writing what was selected.

Scores become int32 keys of the same order, so that ties are exact and -inf is a value like any other.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST = tl.constexpr(-(2**31))


@triton.jit
def ordered_key(score):
    """Map fp32 to int32 of the same order: -0 equals +0, NaN is below -inf (LOWEST, which no other value takes)."""
    bits = tl.where(score == 0.0, 0.0, score).to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(score == score, key, LOWEST)


@triton.jit
def middle(low, high):
    """Round (low + high) / 2 up, without overflow."""
    return (low | high) - ((low ^ high) >> 1)


@triton.jit
def cut(low, high, part, PARTS: tl.constexpr):
    """The key that lies `part` PARTS-th of the way from low to high, rounded up: never low itself."""
    span = high.to(tl.int64) - low.to(tl.int64)
    return (low.to(tl.int64) + (span * part + PARTS - 1) // PARTS).to(tl.int32)


@triton.jit
def halved(keys, low, high, count, k):
    """One step of the search for the k-th key, with one count."""
    mid = middle(low, high)
    at_least = tl.sum((keys >= mid).to(tl.int32), 0)
    enough = at_least >= k
    return tl.where(enough, mid, low), tl.where(enough, high, mid - 1), tl.where(enough, at_least, count)


@triton.jit
def thirded(keys, low, high, count, k):
    """One step with two counts in one sum."""
    first, second = cut(low, high, 1, 3), cut(low, high, 2, 3)
    counts = tl.sum(((keys >= first).to(tl.int32) << 16) + (keys >= second).to(tl.int32), 0)
    low, high, count = narrowed(low, high, count, first, counts >> 16, k)
    return narrowed(low, high, count, second, counts & 0xFFFF, k)


@triton.jit
def quartered(keys, low, high, count, k):
    """One step with three counts in one sum: ten bits each, which is why a key must lie at low or below."""
    first, second, third = cut(low, high, 1, 4), cut(low, high, 2, 4), cut(low, high, 3, 4)
    hits = ((keys >= first).to(tl.int32) << 20) + ((keys >= second).to(tl.int32) << 10) + (keys >= third).to(tl.int32)
    counts = tl.sum(hits, 0)
    low, high, count = narrowed(low, high, count, first, counts >> 20, k)
    low, high, count = narrowed(low, high, count, second, (counts >> 10) & 1023, k)
    return narrowed(low, high, count, third, counts & 1023, k)


@triton.jit
def narrowed(low, high, count, key, at_least, k):
    """The bounds of the k-th key, and the count at the lower one, once `at_least` keys are known to reach `key`."""
    enough = at_least >= k
    # A key above what is known to be too high narrows nothing.
    return (
        tl.where(enough, key, low),
        tl.where(enough, high, tl.minimum(high, key - 1)),
        tl.where(enough, at_least, count),
    )


@triton.jit
def kth_key(keys, low, high, count, k, slack):
    """Search for the k-th largest key, which lies in [low, high]; `count` keys are at least `low`, and none above high.

    Returns (floor, number of keys at least floor): either that number is within k..k+slack, or floor is the k-th key
    itself. Lanes that hold no entry must hold LOWEST: what is tried is above low, so they are never counted. A lane or more
    must be at low or below. A step waits for a sum over the program: the fewer keys a thread has to compare, the more keys
    one step tries.
    """
    while (low < high) & (count > k + slack):
        if keys.shape[0] <= 1024:
            low, high, count = quartered(keys, low, high, count, k)
        elif keys.shape[0] <= 4096:
            low, high, count = thirded(keys, low, high, count, k)
        else:
            low, high, count = halved(keys, low, high, count, k)
    return low, count


COLUMNS = tl.constexpr(1024)


@triton.jit
def places(chosen):
    """Number chosen lanes from 0 on, in a fixed order.

    Not the lanes' own: a scan over more lanes than threads adds up each warp's part of each piece, one after the other. By
    columns a thread adds up its own lanes, and one scan is over the threads.
    """
    hits = chosen.to(tl.int32)
    if chosen.shape[0] <= COLUMNS:
        place = tl.cumsum(hits, 0) - 1
    else:
        table = tl.reshape(hits, (chosen.shape[0] // COLUMNS, COLUMNS))
        column = tl.sum(table, 0)
        before = tl.cumsum(column, 0) - column
        place = tl.reshape(tl.cumsum(table, 0) + before[None, :] - 1, (chosen.shape[0],))
    return place


@triton.jit
def emit(index, position, chosen, out_row, raw_row, table_row, page_size, want_raw):
    """Write chosen entries' cache indices (and, with want_raw, their own) at their positions of a row."""
    page = tl.load(table_row + index // page_size, mask=chosen, other=0)
    tl.store(out_row + position, page * page_size + index % page_size, mask=chosen)
    tl.store(raw_row + position, index, mask=chosen & (want_raw != 0))


@triton.jit
def emit_all(length, k, out_row, raw_row, table_row, page_size, want_raw, MAX_K: tl.constexpr):
    """Write a row no longer than k in order, and -1 into what is left of its k slots."""
    index = tl.arange(0, MAX_K)
    emit(index, index, index < length, out_row, raw_row, table_row, page_size, want_raw)
    rest = (index >= length) & (index < k)
    tl.store(out_row + index, tl.full((MAX_K,), -1, tl.int32), mask=rest)
    tl.store(raw_row + index, tl.full((MAX_K,), -1, tl.int32), mask=rest & (want_raw != 0))
