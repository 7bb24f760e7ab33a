"""Selection from a row: what is above a floor is moved together, searched, and written; ties are won by the lowest entry."""

from __future__ import annotations

import triton
import triton.language as tl

from .topk_device import LOWEST, emit, kth_key, ordered_key, places

RUN = tl.constexpr(4)  # neighbours of a group, which one load reads


@triton.jit
def entry_of(lane, live, groups, list_row, RUNS: tl.constexpr, LISTED: tl.constexpr):
    """The entries of a row that lanes hold: those of the groups it lists, or, where ``groups`` is 0, its own in order.

    Looked up again where they are wanted, since a program's registers hold the keys of its lanes and little else.
    """
    entry = lane
    if LISTED:  # noqa: SIM102, known when it is compiled, the number of groups when it runs
        if groups > 0:
            group = tl.load(list_row + lane // (RUN * RUNS), mask=live, other=0)
            entry = (lane // RUN % RUNS * groups + group) * RUN + lane % RUN
    return entry


@triton.jit
def at_floor(keys, entry, floor, k, length):
    """Mark the keys above the floor, the k-th largest of them, and of those equal to it the entries that come first."""
    place = tl.where(keys == floor, entry, 0x7FFFFFFF)
    wanted = k - tl.sum((keys > floor).to(tl.int32), 0)
    low = tl.full((), 0, tl.int32)
    high = length
    while low < high:
        mid = (low + high) // 2
        enough = tl.sum((place <= mid).to(tl.int32), 0) >= wanted
        high = tl.where(enough, mid, high)
        low = tl.where(enough, low, mid + 1)
    return (keys > floor) | (place <= low)


@triton.jit
def emit_first_ties(
    score_row, length, floor, wanted, placed, out_row, raw_row, table_row, page_size, want_raw, BLOCK: tl.constexpr
):
    """Write the cache indices of the first ``wanted`` entries of a row that equal the floor, from slot ``placed`` on."""
    lane = tl.arange(0, BLOCK)
    start = tl.full((), 0, tl.int32)
    while (start < length) & (wanted > 0):
        live = start + lane < length
        key = ordered_key(tl.load(score_row + start + lane, mask=live, other=0.0))
        tied = (live & (key == floor)).to(tl.int32)
        rank = tl.cumsum(tied, 0)
        first = (tied != 0) & (rank <= wanted)
        emit(start + lane, placed + rank - 1, first, out_row, raw_row, table_row, page_size, want_raw)
        taken = tl.minimum(tl.sum(tied, 0), wanted)
        wanted -= taken
        placed += taken
        start += BLOCK


@triton.jit
def emit_largest(
    kept_row, count, k, length, groups, list_row, out_row, raw_row, table_row, page_size, want_raw,
    ROOM: tl.constexpr, RUNS: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Write the cache indices of the k largest of ``count`` keys, more than k and no more than ROOM, that were moved together."""
    slot = tl.arange(0, ROOM)
    live = slot < count
    kept = tl.load(kept_row + slot, mask=live, other=0)
    lane = kept.to(tl.int32)
    key = tl.where(live, (kept >> 32).to(tl.int32), LOWEST)
    # Asked for before the search, which takes longer than memory does.
    entry = entry_of(lane, live, groups, list_row, RUNS, LISTED)
    page = tl.load(table_row + entry // page_size, mask=live, other=0)
    least = tl.min(tl.where(live, key, 0x7FFFFFFF), 0)
    kth, at_least = kth_key(key, least, tl.max(key, 0), count, k, 0)
    chosen = key >= kth
    if at_least > k:
        chosen = at_floor(key, entry, kth, k, length)
    position = places(chosen)
    tl.store(out_row + position, page * page_size + entry % page_size, mask=chosen)
    tl.store(raw_row + position, entry, mask=chosen & (want_raw != 0))


@triton.jit
def select_row(
    score_row, length, k, groups, listed, floor, list_row, kept_row, out_row, raw_row, table_row, page_size, want_raw,
    SIZE: tl.constexpr, ROOM: tl.constexpr, RUNS: tl.constexpr, DIRECT: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Write the k slots of a row longer than k, of which SIZE lanes hold all that is above ``floor``.

    The lanes above a key that no more than ROOM reach are moved together, and the rest of the search is among them. Where fewer
    than k are above it, it is the k-th key itself, and the first entries of the row that equal it follow.
    """
    lane = tl.arange(0, SIZE)
    live = lane // (RUN * RUNS) < listed
    entry = entry_of(lane, live, groups, list_row, RUNS, LISTED)
    # What is no entry counts as a NaN, which no floor is below: no mask need be kept beside the keys.
    key = ordered_key(tl.load(score_row + entry, mask=live & (entry < length), other=float("nan")))
    count = tl.sum((key > floor).to(tl.int32), 0)
    below = floor
    tie = floor
    if count > ROOM:
        least = tl.min(tl.where(key > floor, key, 0x7FFFFFFF), 0)
        tie, at_least = kth_key(key, least, tl.max(key, 0), count, k, ROOM - k)
        below = tl.where(at_least > ROOM, tie, tie - 1)
        count = tl.sum((key > below).to(tl.int32), 0)
    chosen = key > below
    slot = places(chosen)
    # In one word: two addresses a lane are more registers than there are.
    tl.store(kept_row + slot, (key.to(tl.int64) << 32) + lane, mask=chosen)
    tl.debug_barrier()
    if count > k:
        emit_largest(
            kept_row, count, k, length, groups, list_row, out_row, raw_row, table_row, page_size, want_raw,
            ROOM, RUNS, LISTED,
        )  # fmt: skip
    else:
        few = tl.arange(0, ROOM)
        kept = tl.load(kept_row + few, mask=few < count, other=0).to(tl.int32)
        above = entry_of(kept, few < count, groups, list_row, RUNS, LISTED)
        emit(above, few, few < count, out_row, raw_row, table_row, page_size, want_raw)
        emit_first_ties(
            score_row, length, tie, k - count, count, out_row, raw_row, table_row, page_size, want_raw, DIRECT
        )
