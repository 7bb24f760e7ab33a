"""Device functions of the exact top-k: ordered keys, the k-th key, and the emission of a selection.

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
def likely(low, high, count, above, wanted):
    """The key in (low, high] that `wanted` keys would reach if they lay evenly: `count` reach low, `above` are past high."""
    span = high.to(tl.int64) - low.to(tl.int64)
    share = (count - wanted).to(tl.float32) / tl.maximum(count - above, 1).to(tl.float32)
    ahead = tl.minimum(tl.maximum((span.to(tl.float32) * share).to(tl.int64), 1), span)
    return (low.to(tl.int64) + ahead).to(tl.int32)


@triton.jit
def kth_key(keys, low, high, count, k, slack, GUESS: tl.constexpr = False):
    """Bisect for the k-th largest key, which lies in [low, high]; `count` keys are at least `low`, and none above high.

    Returns (floor, number of keys at least floor): either that number is within k..k+slack, or floor is the k-th key
    itself. Lanes that hold no entry must hold LOWEST: a middle is above low, so they are never counted. GUESS: three steps
    of four go where the counts so far make the key likely, which of ordinary scores saves a third of them; the fourth halves.
    """
    above = tl.full((), 0, tl.int32)
    turn = tl.full((), 0, tl.int32)
    while (low < high) & (count > k + slack):
        mid = middle(low, high)
        if GUESS:
            mid = tl.where(turn % 4 == 3, mid, likely(low, high, count, above, k + slack // 2))
            turn += 1
        at_least = tl.sum((keys >= mid).to(tl.int32), 0)
        enough = at_least >= k
        low = tl.where(enough, mid, low)
        count = tl.where(enough, at_least, count)
        high = tl.where(enough, high, mid - 1)
        if GUESS:
            above = tl.where(enough, above, at_least)
    return low, count


@triton.jit
def tie_cutoff(tied, index, limit, wanted):
    """Bisect for the smallest index in [0, limit] with `wanted` tied entries at or below it."""
    low = tl.full((), 0, tl.int32)
    high = limit
    while low < high:
        mid = (low + high) // 2
        enough = tl.sum((tied & (index <= mid)).to(tl.int32), 0) >= wanted
        high = tl.where(enough, mid, high)
        low = tl.where(enough, low, mid + 1)
    return low


@triton.jit
def select(keys, index, live, k, limit):
    """Mark exactly k of the live entries (there are at least k): the largest keys, ties by the lowest index."""
    bounded = tl.where(live, keys, LOWEST)
    low = tl.min(tl.where(live, keys, 0x7FFFFFFF), 0)
    high = tl.max(bounded, 0)
    floor, count = kth_key(bounded, low, high, tl.sum(live.to(tl.int32), 0), k, 0)
    chosen = live & (keys >= floor)
    if count > k:
        tied = live & (keys == floor)
        greater = live & (keys > floor)
        last = tie_cutoff(tied, index, limit, k - tl.sum(greater.to(tl.int32), 0))
        chosen = greater | (tied & (index <= last))
    return chosen


@triton.jit
def emit(index, position, chosen, out_row, raw_row, table_row, page_size, want_raw):
    """Write chosen entries' cache indices (and, with want_raw, their own) at their positions of a row."""
    page = tl.load(table_row + index // page_size, mask=chosen, other=0)
    tl.store(out_row + position, page * page_size + index % page_size, mask=chosen)
    tl.store(raw_row + position, index, mask=chosen & (want_raw != 0))


@triton.jit
def emit_in_turn(index, chosen, first, out_row, raw_row, table_row, page_size, want_raw):
    """Write chosen entries one after the other, from slot `first` on."""
    position = first + tl.cumsum(chosen.to(tl.int32), 0) - 1
    emit(index, position, chosen, out_row, raw_row, table_row, page_size, want_raw)
