"""The passes of the exact top-k: maxima of groups of a row's entries, the groups above a floor, selection among their entries.

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
from .topk_device import LOWEST, emit_all, kth_key, middle, ordered_key, places
from .topk_select import RUN, select_row

# These differ from call to call: specialised for 1 and multiples of 16, a new combination would be compiled while serving.
SCALARS = ("limit", "length_stride")
SELECT_SCALARS = (*SCALARS, "k", "page_size", "want_raw", "table_stride", "out_stride", "raw_stride")


@triton.jit
def row_length(length_ptr, row, length_stride, limit):
    """Read a row's length, clamped to what the scores and the page table hold."""
    return tl.minimum(tl.maximum(tl.load(length_ptr + row * length_stride), 0), limit)


@triton.jit
def read_scores(score_row, index, length, WIDE: tl.constexpr):
    """A row's entries, NaN past its end. WIDE: by fours, of which the last may reach past the end."""
    live = index < length
    wanted = live
    if WIDE:
        wanted = tl.max_constancy(index // 4 * 4 < length, 4)
    return tl.where(live, tl.load(score_row + index, mask=wanted, other=0.0), float("nan"))


@triton.jit
def row_chunks(length, CHUNK: tl.constexpr, GROUP: tl.constexpr):
    """Chunks of CHUNK groups that cover a row."""
    return (length + GROUP * CHUNK - 1) // (GROUP * CHUNK)


@triton.jit(do_not_specialize=(*SCALARS, "max_stride"))
def dsv4_topk_group_key_kernel(
    score_ptr, length_ptr, max_ptr, limit, max_stride, score_stride, length_stride,
    CHUNK: tl.constexpr, ROOM: tl.constexpr, RUNS: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 1, a row's programs in turn for each CHUNK of its groups: the largest key of each group.

    A group is RUNS runs of neighbours that lie apart by as much of the row: winners that lie together share no group. Rows that
    one program holds, ROOM groups, need none.
    """
    let_next_start(PDL)
    row = tl.program_id(0).to(tl.int64)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > RUN * RUNS * ROOM:
        chunks = row_chunks(length, CHUNK, RUN * RUNS)
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
def list_groups(max_row, groups, k, list_row, ROOM: tl.constexpr, HELD: tl.constexpr):
    """List the groups above a floor; return their number and the floor.

    ROOM is at least 1.25 k: the floor is reached by no more groups, or it is the k-th maximum itself, above which are fewer.
    """
    BLOCK: tl.constexpr = 4 * ROOM
    if groups <= BLOCK:
        listed, floor = held_floor(max_row, groups, k, list_row, BLOCK, ROOM)
    elif groups <= HELD:
        listed, floor = held_floor(max_row, groups, k, list_row, HELD, ROOM)
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
    CHUNK: tl.constexpr, ROOM: tl.constexpr, RUNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 2, one program a row: the groups above the floor."""
    let_next_start(PDL)
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > RUN * RUNS * ROOM:
        groups = row_chunks(length, CHUNK, RUN * RUNS) * CHUNK
        listed, floor = list_groups(
            max_ptr + row * max_stride, groups, k, list_ptr + row * ROOM, ROOM, RUN * RUNS * ROOM
        )
        tl.store(count_ptr + row * 2, listed)
        tl.store(count_ptr + row * 2 + 1, floor)


# Not the scores' stride either: rows known to be aligned are read by fours, in another layout than keys are counted in, and the
# way from one to the other takes 64 KiB of shared memory and more registers than there are.
@triton.jit(do_not_specialize=(*SELECT_SCALARS, "score_stride"))
def dsv4_topk_gather_kernel(
    score_ptr, length_ptr, table_ptr, list_ptr, count_ptr, kept_ptr, out_ptr, raw_ptr,
    limit, k, page_size, want_raw, score_stride, length_stride, table_stride, out_stride, raw_stride,
    CHUNK: tl.constexpr, ROOM: tl.constexpr, RUNS: tl.constexpr, MAX_K: tl.constexpr, DIRECT: tl.constexpr,
    LISTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 3, one program a row: write every one of the row's k slots.

    Without LISTED no row is longer than what one program holds.
    """
    wait_for_previous(PDL)
    HELD: tl.constexpr = RUN * RUNS * ROOM
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
            DIRECT, ROOM, RUNS, DIRECT, False,
        )  # fmt: skip
    else:
        if LISTED:  # noqa: SIM102, known when it is compiled, the length when it runs
            if length > HELD:
                groups = row_chunks(length, CHUNK, RUN * RUNS) * CHUNK
                listed = tl.load(count_ptr + row * 2)
                floor = tl.load(count_ptr + row * 2 + 1)
        select_row(
            score_row, length, k, groups, listed, floor, list_row, kept_row, out_row, raw_row, table_row, page_size, want_raw,
            HELD, ROOM, RUNS, DIRECT, LISTED,
        )  # fmt: skip
