"""The exact top-k by gathering: maxima of groups of sixteen, the groups that reach a floor, selection among their entries.

At least k groups reach the floor, a key at most the k-th largest maximum: so k scores do, and those above it lie in the groups
whose maximum is above it. The selection holds these groups' entries in one program's registers. Should they be fewer than k,
since the floor is a score itself and many share it, the rest is found by reading the row once more, in order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .pdl import let_next_start, wait_for_previous
from .topk_device import LOWEST, emit_in_turn, kth_key, ordered_key, select
from .topk_kernels import SCALARS, SELECT_SCALARS, emit_all, read_scores, row_length, select_directly

RUN = tl.constexpr(4)  # neighbours of a group, which one load reads
RUNS = tl.constexpr(4)  # of them in a group, a quarter of the row apart: winners that lie together share no group
GROUP = tl.constexpr(16)


@triton.jit(do_not_specialize=SCALARS)
def dsv4_topk_group_key_kernel(
    score_ptr, length_ptr, max_ptr, limit, score_stride, length_stride,
    GROUPS: tl.constexpr, CHUNK: tl.constexpr, HELD: tl.constexpr, WIDE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 1, one program for CHUNK groups of a row: the largest key of each. Rows of HELD entries at most need none."""
    let_next_start(PDL)
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    length = row_length(length_ptr, row, length_stride, limit)
    if length > HELD:
        # As scores: a key takes six instructions, and a maximum passes NaN over.
        best = tl.full((CHUNK * RUN,), float("nan"), tl.float32)
        for run in tl.static_range(RUNS):
            index = (run * GROUPS + chunk * CHUNK) * RUN + tl.arange(0, CHUNK * RUN)
            best = tl.maximum(best, read_scores(score_ptr + row * score_stride, index, length, WIDE))
        keys = tl.max(tl.reshape(ordered_key(best), (CHUNK, RUN)), 1)
        tl.store(max_ptr + row * GROUPS + chunk * CHUNK + tl.arange(0, CHUNK), keys)


@triton.jit(do_not_specialize=(*SCALARS, "k"))
def dsv4_topk_list_kernel(
    length_ptr, max_ptr, list_ptr, count_ptr, limit, k, length_stride,
    GROUPS: tl.constexpr, ROOM: tl.constexpr, HELD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 2, one program a row: list the groups above the floor.

    ROOM is at least 1.25 k: the floor is reached by no more groups, or it is the k-th maximum itself, above which are fewer.
    """
    let_next_start(PDL)
    wait_for_previous(PDL)
    row = tl.program_id(0).to(tl.int64)
    if row_length(length_ptr, row, length_stride, limit) > HELD:
        group = tl.arange(0, GROUPS)
        maxima = tl.load(max_ptr + row * GROUPS + group)
        everyone = tl.full((), GROUPS, tl.int32)
        floor, _ = kth_key(maxima, tl.min(maxima, 0), tl.max(maxima, 0), everyone, k, k // 4)
        hit = maxima > floor
        place = tl.cumsum(hit.to(tl.int32), 0) - 1
        tl.store(list_ptr + row * ROOM + place, group, mask=hit & (place < ROOM))
        tl.store(count_ptr + row * 2, tl.sum(hit.to(tl.int32), 0))
        tl.store(count_ptr + row * 2 + 1, floor)


@triton.jit
def emit_first_ties(
    score_row, length, floor, wanted, written, out_row, raw_row, table_row, page_size, want_raw, BLOCK: tl.constexpr
):
    """Write the first ``wanted`` entries of a row that equal the floor, from slot ``written`` on."""
    lane = tl.arange(0, BLOCK)
    for start in range(0, length, BLOCK):
        live = start + lane < length
        key = ordered_key(tl.load(score_row + start + lane, mask=live, other=0.0))
        tied = (live & (key == floor)).to(tl.int32)
        chosen = (tied != 0) & (tl.cumsum(tied, 0) <= wanted)
        emit_in_turn(start + lane, chosen, written, out_row, raw_row, table_row, page_size, want_raw)
        taken = tl.sum(chosen.to(tl.int32), 0)
        wanted -= taken
        written += taken


@triton.jit(do_not_specialize=SELECT_SCALARS)
def dsv4_topk_gather_kernel(
    score_ptr, length_ptr, table_ptr, list_ptr, count_ptr, out_ptr, raw_ptr,
    limit, k, page_size, want_raw, score_stride, length_stride, table_stride, out_stride, raw_stride,
    GROUPS: tl.constexpr, ROOM: tl.constexpr, MAX_K: tl.constexpr, DIRECT: tl.constexpr, HELD: tl.constexpr,
    LISTED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Pass 3, one program a row: write every one of the row's k slots. Without LISTED no row is longer than HELD."""
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
    else:
        lane = tl.arange(0, HELD)
        entry = lane
        within = lane < length
        floor = tl.full((), LOWEST, tl.int32)
        if LISTED:  # noqa: SIM102, known when it is compiled, the length when it runs
            if length > HELD:
                listed = lane // GROUP < tl.load(count_ptr + row * 2)
                floor = tl.load(count_ptr + row * 2 + 1)
                group = tl.load(list_ptr + row * ROOM + lane // GROUP, mask=listed, other=0)
                entry = (lane % GROUP // RUN * GROUPS + group) * RUN + lane % RUN
                within = listed & (entry < length)
        entry_key = ordered_key(tl.load(score_row + entry, mask=within, other=0.0))
        above = within & (entry_key > floor)
        found = tl.sum(above.to(tl.int32), 0)
        chosen = above
        if found > k:
            chosen = select(entry_key, entry, above, k, length)
        emit_in_turn(entry, chosen, 0, out_row, raw_row, table_row, page_size, want_raw)
        if found < k:
            emit_first_ties(
                score_row, length, floor, k - found, found, out_row, raw_row, table_row, page_size, want_raw, DIRECT
            )  # fmt: skip
