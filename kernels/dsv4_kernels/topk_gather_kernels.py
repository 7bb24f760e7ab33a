"""The exact top-k by gathering: maxima of groups of sixteen, the groups that reach a floor, selection among their entries.

At least k groups reach the floor, a key at most the k-th largest maximum: so k scores do, and those above it lie in the groups
whose maximum is above it. The selection holds these groups' entries in one program's registers, and moves those above the floor
together before it searches them. Should they be fewer than k, since the floor is a score itself and many share it, the rest is
found by reading the row once more, in order.

How many groups a row has follows its own length, which a captured launch reads when it runs: so does the work.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .pdl import let_next_start, wait_for_previous
from .topk_device import LOWEST, emit, kth_key, middle, ordered_key, places
from .topk_kernels import SCALARS, SELECT_SCALARS, emit_all, read_scores, row_length

RUN = tl.constexpr(4)  # neighbours of a group, which one load reads
RUNS = tl.constexpr(4)  # of them in a group, a quarter of the row apart: winners that lie together share no group
GROUP = tl.constexpr(16)


@triton.jit
def row_chunks(length, CHUNK: tl.constexpr):
    """Chunks of CHUNK groups that cover a row."""
    return (length + GROUP * CHUNK - 1) // (GROUP * CHUNK)


@triton.jit(do_not_specialize=(*SCALARS, "max_stride"))
def dsv4_topk_group_key_kernel(
    score_ptr, length_ptr, max_ptr, limit, max_stride, score_stride, length_stride,
    CHUNK: tl.constexpr, ROOM: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 1, a row's programs in turn for each CHUNK of its groups: the largest key of each group.

    Rows that one program holds (16 ROOM entries) need none.
    """
    let_next_start(PDL)
    row = tl.program_id(0).to(tl.int64)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > GROUP * ROOM:
        chunks = row_chunks(length, CHUNK)
        for chunk in range(tl.program_id(1), chunks, tl.num_programs(1)):
            # As scores: a key takes six instructions, and a maximum passes NaN over.
            best = tl.full((CHUNK * RUN,), float("nan"), tl.float32)
            for run in tl.static_range(RUNS):
                index = (run * chunks + chunk) * (CHUNK * RUN) + tl.arange(0, CHUNK * RUN)
                best = tl.maximum(best, read_scores(score_ptr + row * score_stride, index, length, WIDE))
            keys = tl.max(tl.reshape(ordered_key(best), (CHUNK, RUN)), 1)
            tl.store(max_ptr + row * max_stride + chunk * CHUNK + tl.arange(0, CHUNK), keys)


@triton.jit
def held_floor(max_row, groups, k, list_row, SIZE: tl.constexpr, ROOM: tl.constexpr):
    """List the groups above a key that between k and 1.25 k of a row's maxima reach, or above the k-th largest itself.

    The program holds SIZE maxima. Returns how many were listed, and the key.
    """
    group = tl.arange(0, SIZE)
    # A key that no score has, so that no mask need be kept for the least of them.
    maxima = tl.load(max_row + group, mask=group < groups, other=0x7FFFFFFF)
    low = tl.min(maxima, 0)
    maxima = tl.where(maxima == 0x7FFFFFFF, LOWEST, maxima)
    floor, _ = kth_key(maxima, low, tl.max(maxima, 0), groups, k, k // 4)
    hit = maxima > floor
    place = places(hit)
    tl.store(list_row + place, group, mask=hit & (place < ROOM))
    return tl.sum(hit.to(tl.int32), 0), floor


@triton.jit
def scanned_floor(max_row, groups, k, BLOCK: tl.constexpr):
    """A key that between k and 1.25 k of the maxima reach, or the k-th largest itself, of more maxima than a program holds."""
    lane = tl.arange(0, BLOCK)
    low = tl.full((), LOWEST, tl.int32)
    high = tl.full((), 0x7FFFFFFF, tl.int32)
    count = groups
    while (low < high) & (count > k + k // 4):
        mid = middle(low, high)
        at_least = tl.full((), 0, tl.int32)
        for start in range(0, groups, BLOCK):
            maxima = tl.load(max_row + start + lane, mask=start + lane < groups, other=LOWEST)
            at_least += tl.sum((maxima >= mid).to(tl.int32), 0)
        enough = at_least >= k
        low = tl.where(enough, mid, low)
        count = tl.where(enough, at_least, count)
        high = tl.where(enough, high, mid - 1)
    return low


@triton.jit
def list_groups(max_row, groups, k, list_row, ROOM: tl.constexpr):
    """List the groups above a floor; return their number and the floor.

    ROOM is at least 1.25 k: the floor is reached by no more groups, or it is the k-th maximum itself, above which are fewer.
    """
    BLOCK: tl.constexpr = 4 * ROOM
    if groups <= BLOCK:
        listed, floor = held_floor(max_row, groups, k, list_row, BLOCK, ROOM)
    elif groups <= GROUP * ROOM:
        listed, floor = held_floor(max_row, groups, k, list_row, GROUP * ROOM, ROOM)
    else:
        floor = scanned_floor(max_row, groups, k, BLOCK)
        listed = tl.full((), 0, tl.int32)
        for start in range(0, groups, BLOCK):
            group = start + tl.arange(0, BLOCK)
            hit = tl.load(max_row + group, mask=group < groups, other=LOWEST) > floor
            place = listed + places(hit)
            tl.store(list_row + place, group, mask=hit & (place < ROOM))
            listed += tl.sum(hit.to(tl.int32), 0)
    return listed, floor


@triton.jit(do_not_specialize=(*SCALARS, "k", "max_stride"))
def dsv4_topk_list_kernel(
    length_ptr, max_ptr, list_ptr, count_ptr, limit, k, max_stride, length_stride,
    CHUNK: tl.constexpr, ROOM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 2, one program a row: the groups above the floor."""
    let_next_start(PDL)
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > GROUP * ROOM:
        groups = row_chunks(length, CHUNK) * CHUNK
        listed, floor = list_groups(max_ptr + row * max_stride, groups, k, list_ptr + row * ROOM, ROOM)
        tl.store(count_ptr + row * 2, listed)
        tl.store(count_ptr + row * 2 + 1, floor)


@triton.jit
def entry_of(lane, live, groups, list_row, LISTED: tl.constexpr):
    """The entries of a row that lanes hold: those of the groups it lists, or, where ``groups`` is 0, its own in order.

    Looked up again where they are wanted, since a program's registers hold the keys of its lanes and little else.
    """
    entry = lane
    if LISTED:  # noqa: SIM102, known when it is compiled, the number of groups when it runs
        if groups > 0:
            group = tl.load(list_row + lane // GROUP, mask=live, other=0)
            entry = (lane % GROUP // RUN * groups + group) * RUN + lane % RUN
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
    ROOM: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Write the cache indices of the k largest of ``count`` keys, more than k and no more than ROOM, that were moved together."""
    slot = tl.arange(0, ROOM)
    live = slot < count
    kept = tl.load(kept_row + slot, mask=live, other=0)
    lane = kept.to(tl.int32)
    key = tl.where(live, (kept >> 32).to(tl.int32), LOWEST)
    # Asked for before the search, which takes longer than memory does.
    entry = entry_of(lane, live, groups, list_row, LISTED)
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
    SIZE: tl.constexpr, ROOM: tl.constexpr, DIRECT: tl.constexpr, LISTED: tl.constexpr,
):  # fmt: skip
    """Write the k slots of a row longer than k, of which SIZE lanes hold all that is above ``floor``.

    The lanes above a key that no more than ROOM reach are moved together, and the rest of the search is among them. Where fewer
    than k are above it, it is the k-th key itself, and the first entries of the row that equal it follow.
    """
    lane = tl.arange(0, SIZE)
    live = lane // GROUP < listed
    entry = entry_of(lane, live, groups, list_row, LISTED)
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
            kept_row, count, k, length, groups, list_row, out_row, raw_row, table_row, page_size, want_raw, ROOM, LISTED
        )
    else:
        few = tl.arange(0, ROOM)
        kept = tl.load(kept_row + few, mask=few < count, other=0).to(tl.int32)
        above = entry_of(kept, few < count, groups, list_row, LISTED)
        emit(above, few, few < count, out_row, raw_row, table_row, page_size, want_raw)
        emit_first_ties(
            score_row, length, tie, k - count, count, out_row, raw_row, table_row, page_size, want_raw, DIRECT
        )


# Not the scores' stride either: rows known to be aligned are read by fours, in another layout than keys are counted in, and the
# way from one to the other takes 64 KiB of shared memory and more registers than there are.
@triton.jit(do_not_specialize=(*SELECT_SCALARS, "score_stride"))
def dsv4_topk_gather_kernel(
    score_ptr, length_ptr, table_ptr, list_ptr, count_ptr, kept_ptr, out_ptr, raw_ptr,
    limit, k, page_size, want_raw, score_stride, length_stride, table_stride, out_stride, raw_stride,
    CHUNK: tl.constexpr, ROOM: tl.constexpr, MAX_K: tl.constexpr, DIRECT: tl.constexpr, LISTED: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Pass 3, one program a row: write every one of the row's k slots.

    Without LISTED no row is longer than what one program holds.
    """
    wait_for_previous(PDL)
    HELD: tl.constexpr = GROUP * ROOM
    row = tl.program_id(0).to(tl.int64)
    length = row_length(length_ptr, row, length_stride, limit)
    score_row = score_ptr + row * score_stride
    list_row, kept_row = list_ptr + row * ROOM, kept_ptr + row * ROOM
    out_row, raw_row, table_row = out_ptr + row * out_stride, raw_ptr + row * raw_stride, table_ptr + row * table_stride
    # A row that is held whole: as many lanes as it may need, and above the lowest key, a NaN's.
    groups = tl.full((), 0, tl.int32)
    listed = tl.full((), ROOM, tl.int32)
    floor = tl.full((), LOWEST, tl.int32)
    if length <= k:
        emit_all(length, k, out_row, raw_row, table_row, page_size, want_raw, MAX_K)
    elif length <= DIRECT:
        select_row(
            score_row, length, k, groups, listed, floor, list_row, kept_row, out_row, raw_row, table_row, page_size, want_raw,
            DIRECT, ROOM, DIRECT, False,
        )  # fmt: skip
    else:
        if LISTED:  # noqa: SIM102, known when it is compiled, the length when it runs
            if length > HELD:
                groups = row_chunks(length, CHUNK) * CHUNK
                listed = tl.load(count_ptr + row * 2)
                floor = tl.load(count_ptr + row * 2 + 1)
        select_row(
            score_row, length, k, groups, listed, floor, list_row, kept_row, out_row, raw_row, table_row, page_size, want_raw,
            HELD, ROOM, DIRECT, LISTED,
        )  # fmt: skip
