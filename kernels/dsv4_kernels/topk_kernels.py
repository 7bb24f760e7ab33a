"""The passes of the exact top-k: group maxima, a floor, candidates above it, selection.

A floor that at least k scores reach is found from the maxima of disjoint groups: the k-th largest maximum. What lies
above it, and the first entries equal to it, are few for any ordinary row; the selection is exact among them. A row
whose candidates don't fit is selected by scanning it whole, which is slower and just as exact.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .pdl import let_next_start, wait_for_previous
from .topk_device import LOWEST, emit, emit_in_turn, kth_key, middle, ordered_key, select, tie_cutoff

# These differ from call to call: specialised for 1 and multiples of 16, a new combination would be compiled while serving.
SCALARS = ("limit", "length_stride")
SELECT_SCALARS = (*SCALARS, "k", "page_size", "want_raw", "table_stride", "out_stride", "raw_stride")


@triton.jit
def row_length(length_ptr, row, length_stride, limit):
    """Read a row's length, clamped to what the scores and the page table hold."""
    return tl.minimum(tl.maximum(tl.load(length_ptr + row * length_stride), 0), limit)


@triton.jit
def split_index(step, split, SPLITS: tl.constexpr, GROUPS: tl.constexpr, DEPTH: tl.constexpr):
    """Indices of one step of a split, ascending. Splits interleave by runs of GROUPS, so that they share a hot spot."""
    lane = tl.arange(0, GROUPS * DEPTH)
    run = step * DEPTH + lane // GROUPS
    return (run * SPLITS + split) * GROUPS + lane % GROUPS


@triton.jit
def read_scores(score_row, index, length, WIDE: tl.constexpr):
    """A row's entries, NaN past its end. WIDE: by fours, of which the last may reach past the end."""
    live = index < length
    wanted = live
    if WIDE:
        wanted = tl.max_constancy(index // 4 * 4 < length, 4)
    return tl.where(live, tl.load(score_row + index, mask=wanted, other=0.0), float("nan"))


@triton.jit
def read_keys(score_row, index, length, WIDE: tl.constexpr):
    """Keys of a row's entries, LOWEST (a NaN's) past its end."""
    return ordered_key(read_scores(score_row, index, length, WIDE))


@triton.jit(do_not_specialize=SCALARS)
def dsv4_topk_group_max_kernel(
    score_ptr, length_ptr, max_ptr, limit, score_stride, length_stride,
    SPLITS: tl.constexpr, GROUPS: tl.constexpr, DEPTH: tl.constexpr, DIRECT: tl.constexpr, WIDE: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Pass 1, one program a split: the largest key of each of GROUPS interleaved groups."""
    let_next_start(PDL)
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > DIRECT:
        best = tl.full((GROUPS * DEPTH,), LOWEST, tl.int32)
        for step in range((length + SPLITS * GROUPS * DEPTH - 1) // (SPLITS * GROUPS * DEPTH)):
            index = split_index(step, split, SPLITS, GROUPS, DEPTH)
            best = tl.maximum(best, read_keys(score_ptr + row * score_stride, index, length, WIDE))
        group = tl.max(tl.reshape(best, (DEPTH, GROUPS)), 0)
        tl.store(max_ptr + (row * SPLITS + split) * GROUPS + tl.arange(0, GROUPS), group)


@triton.jit(do_not_specialize=(*SCALARS, "k"))
def dsv4_topk_floor_kernel(
    length_ptr, max_ptr, floor_ptr, limit, k, length_stride, MAXIMA: tl.constexpr, DIRECT: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """Pass 2, one program a row: a key that between k and 1.25 k of the maxima reach, or the k-th largest itself."""
    let_next_start(PDL)
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    if row_length(length_ptr, row, length_stride, limit) > DIRECT:
        maxima = tl.load(max_ptr + row * MAXIMA + tl.arange(0, MAXIMA))
        count = tl.full((), MAXIMA, tl.int32)
        floor, _ = kth_key(maxima, tl.min(maxima, 0), tl.max(maxima, 0), count, k, k // 4)
        tl.store(floor_ptr + row, floor)


@triton.jit(do_not_specialize=SCALARS)
def dsv4_topk_narrow_kernel(
    score_ptr, length_ptr, floor_ptr, above_ptr, tie_ptr, count_ptr, limit, score_stride, length_stride,
    SPLITS: tl.constexpr, GROUPS: tl.constexpr, DEPTH: tl.constexpr, DIRECT: tl.constexpr, WIDE: tl.constexpr,
    ABOVE_ROOM: tl.constexpr, TIE_ROOM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 3, one program a split: list what lies above the row's floor, and the first entries equal to it."""
    let_next_start(PDL)
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > DIRECT:
        floor = tl.load(floor_ptr + row)
        slot = row * SPLITS + split
        above_count = tl.full((), 0, tl.int32)
        tie_count = tl.full((), 0, tl.int32)
        for step in range((length + SPLITS * GROUPS * DEPTH - 1) // (SPLITS * GROUPS * DEPTH)):
            index = split_index(step, split, SPLITS, GROUPS, DEPTH)
            live = index < length
            key = read_keys(score_ptr + row * score_stride, index, length, WIDE)
            above = live & (key > floor)
            tied = live & (key == floor)
            # One scan counts both: at most GROUPS * DEPTH = 4096 of each, so 16 bits hold the lower.
            both = above.to(tl.int32) + (tied.to(tl.int32) << 16)
            rank = tl.cumsum(both, 0)
            place = above_count + (rank & 0xFFFF) - 1
            tl.store(above_ptr + slot * ABOVE_ROOM + place, index, mask=above & (place < ABOVE_ROOM))
            place = tie_count + (rank >> 16) - 1
            tl.store(tie_ptr + slot * TIE_ROOM + place, index, mask=tied & (place < TIE_ROOM))
            tl.store(count_ptr + slot * 4 + 2 + place * 0, index, mask=tied & (place == TIE_ROOM))
            counted = tl.sum(both, 0)
            above_count += counted & 0xFFFF
            tie_count += counted >> 16
        tl.store(count_ptr + slot * 4, above_count)
        tl.store(count_ptr + slot * 4 + 1, tie_count)


@triton.jit
def emit_all(length, k, out_row, raw_row, table_row, page_size, want_raw, MAX_K: tl.constexpr):
    """Write a row no longer than k in order, and -1 into what is left of its k slots."""
    index = tl.arange(0, MAX_K)
    emit(index, index, index < length, out_row, raw_row, table_row, page_size, want_raw)
    rest = (index >= length) & (index < k)
    tl.store(out_row + index, tl.full((MAX_K,), -1, tl.int32), mask=rest)
    tl.store(raw_row + index, tl.full((MAX_K,), -1, tl.int32), mask=rest & (want_raw != 0))


@triton.jit
def select_directly(score_row, length, k, out_row, raw_row, table_row, page_size, want_raw, DIRECT: tl.constexpr):
    """Select from a row longer than k that one program holds."""
    index = tl.arange(0, DIRECT)
    live = index < length
    key = ordered_key(tl.load(score_row + index, mask=live, other=0.0))
    emit_in_turn(index, select(key, index, live, k, length), 0, out_row, raw_row, table_row, page_size, want_raw)


@triton.jit
def scan_row(score_row, length, k, out_row, raw_row, table_row, page_size, want_raw, BLOCK: tl.constexpr):
    """Select from a whole row by reading it once a bit of the key: exact for any scores."""
    lane = tl.arange(0, BLOCK)
    low = tl.full((), LOWEST, tl.int32)
    high = tl.full((), 0x7FFFFFFF, tl.int32)
    count = length
    while (low < high) & (count > k):
        mid = middle(low, high)
        at_least = tl.full((), 0, tl.int32)
        for start in range(0, length, BLOCK):
            live = start + lane < length
            key = ordered_key(tl.load(score_row + start + lane, mask=live, other=0.0))
            at_least += tl.sum((live & (key >= mid)).to(tl.int32), 0)
        enough = at_least >= k
        low = tl.where(enough, mid, low)
        count = tl.where(enough, at_least, count)
        high = tl.where(enough, high, mid - 1)
    greater = tl.full((), 0, tl.int32)
    for start in range(0, length, BLOCK):
        live = start + lane < length
        key = ordered_key(tl.load(score_row + start + lane, mask=live, other=0.0))
        greater += tl.sum((live & (key > low)).to(tl.int32), 0)
    ties_left = k - greater
    written = tl.full((), 0, tl.int32)
    for start in range(0, length, BLOCK):
        live = start + lane < length
        key = ordered_key(tl.load(score_row + start + lane, mask=live, other=0.0))
        tied = live & (key == low)
        chosen = (live & (key > low)) | (tied & (tl.cumsum(tied.to(tl.int32), 0) <= ties_left))
        emit_in_turn(start + lane, chosen, written, out_row, raw_row, table_row, page_size, want_raw)
        ties_left -= tl.sum((chosen & tied).to(tl.int32), 0)
        written += tl.sum(chosen.to(tl.int32), 0)


@triton.jit
def select_candidates(
    score_row, above_row, tie_row, count_row, length, k, out_row, raw_row, table_row, page_size, want_raw,
    SPLITS: tl.constexpr, DIRECT: tl.constexpr, ABOVE_ROOM: tl.constexpr, TIE_ROOM: tl.constexpr,
):  # fmt: skip
    """Select from a narrowed row's lists. Returns whether they held all that was needed; if not, nothing is written."""
    splits = tl.arange(0, SPLITS)
    above_counts = tl.load(count_row + splits * 4)
    tie_counts = tl.load(count_row + splits * 4 + 1)
    above_total = tl.sum(above_counts, 0)
    # A split without room for all of its ties listed those before this one.
    unlisted = tl.load(count_row + splits * 4 + 2, mask=tie_counts > TIE_ROOM, other=0x7FFFFFFF)

    tie_lane = tl.arange(0, SPLITS * TIE_ROOM)
    tied = tie_lane % TIE_ROOM < tl.load(count_row + (tie_lane // TIE_ROOM) * 4 + 1)
    tie_index = tl.load(tie_row + tie_lane, mask=tied, other=0)
    wanted = tl.maximum(k - above_total, 0)
    cutoff = tl.full((), -1, tl.int32)
    if wanted > 0:
        cutoff = tie_cutoff(tied, tie_index, length, wanted)
    held = (tl.max(above_counts, 0) <= ABOVE_ROOM) & (cutoff < tl.min(unlisted, 0))
    if held:
        lane = tl.arange(0, DIRECT)
        above = lane % ABOVE_ROOM < tl.load(count_row + (lane // ABOVE_ROOM) * 4)
        index = tl.load(above_row + lane, mask=above, other=0)
        chosen = above
        if above_total > k:
            key = ordered_key(tl.load(score_row + index, mask=above, other=0.0))
            chosen = select(key, index, above, k, length)
        emit_in_turn(index, chosen, 0, out_row, raw_row, table_row, page_size, want_raw)
        if wanted > 0:
            chosen_ties = tied & (tie_index <= cutoff)
            emit_in_turn(tie_index, chosen_ties, above_total, out_row, raw_row, table_row, page_size, want_raw)
    return held


@triton.jit(do_not_specialize=SELECT_SCALARS)
def dsv4_topk_select_kernel(
    score_ptr, length_ptr, table_ptr, above_ptr, tie_ptr, count_ptr, out_ptr, raw_ptr,
    limit, k, page_size, want_raw, score_stride, length_stride, table_stride, out_stride, raw_stride,
    SPLITS: tl.constexpr, MAX_K: tl.constexpr, DIRECT: tl.constexpr, ABOVE_ROOM: tl.constexpr, TIE_ROOM: tl.constexpr,
    NARROWED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 4, one program a row: write every one of the row's k slots."""
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    length = row_length(length_ptr, row, length_stride, limit)
    score_row = score_ptr + row * score_stride
    table_row = table_ptr + row * table_stride
    out_row = out_ptr + row * out_stride
    raw_row = raw_ptr + row * raw_stride
    if length <= k:
        emit_all(length, k, out_row, raw_row, table_row, page_size, want_raw, MAX_K)
    elif length <= DIRECT:
        select_directly(score_row, length, k, out_row, raw_row, table_row, page_size, want_raw, DIRECT)
    elif NARROWED:
        held = select_candidates(
            score_row, above_ptr + row * DIRECT, tie_ptr + row * (SPLITS * TIE_ROOM), count_ptr + row * (SPLITS * 4),
            length, k, out_row, raw_row, table_row, page_size, want_raw, SPLITS, DIRECT, ABOVE_ROOM, TIE_ROOM,
        )  # fmt: skip
        if not held:
            scan_row(score_row, length, k, out_row, raw_row, table_row, page_size, want_raw, DIRECT)
