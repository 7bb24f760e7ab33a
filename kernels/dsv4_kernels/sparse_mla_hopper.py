"""A sparse-MLA decode for Hopper with a warpgroup that reads and dequantises while two others multiply (Gluon).

It computes what ``dsv4_sparse_mla_decode_kernel`` computes, tile for tile and in the same order: 64 heads, 64 tokens a step.
Keys are values in MLA, so a dequantised tile [64 tokens, 512] in shared memory serves all of it. One warpgroup has the
scores, the softmax and the output's first 256 dimensions, one the other 256, and one fills two tiles in turn.

Triton's interpreter cannot run it. Its PTX is proved by emulation (tests/correctness/ptx), and on a card like any other.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from . import sparse_mla_kernels
from .pdl import let_next_start
from .sparse_mla_kernels import (
    DATA_BYTES,
    DECODE_SCALARS,
    FP8_TO_BF16,
    FP32_TO_BF16,
    LN2,
    SCALE_BYTES,
)

TOKENS = 64  # of a tile
HEADS = 64
# Of a thread; the first consumer has what they leave of 504, 216. With these nothing is spilled.
READER_REGISTERS = 128
SECOND_REGISTERS = 160

# A warp reads eight tokens of a group of 64 fp8 values, 16 bytes a lane; the same lanes hold its 64 bf16 values.
GROUP = gl.constexpr(gl.BlockedLayout([1, 16], [8, 4], [4, 1], [1, 0]))
QUERY = gl.constexpr(gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0]))
SCORE = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
OUTPUT = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 256, 16]))
WEIGHT = gl.constexpr(gl.DotOperandLayout(0, OUTPUT.value, 2))
TILE_SHARED = gl.constexpr(gl.NVMMASharedLayout(128, 16, rank=2))
LINE_SHARED = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))

# What needs no layout is the Triton kernel's own, compiled as Gluon.
_attended_length = gluon.jit(sparse_mla_kernels._attended_length.fn)
_tokens_share = gluon.jit(sparse_mla_kernels._tokens_share.fn)
_let_next_start = gluon.jit(let_next_start.fn)


@gluon.jit
def _tile_tokens(
    tile, main_tiles, length, extra_length, index_row, extra_index_row, step, extra_step, TOKENS: gl.constexpr,
    HAS_EXTRA: gl.constexpr,
):  # fmt: skip
    """Token numbers of a tile's lanes, -1 past the row's end."""
    lanes = tile * TOKENS + gl.arange(0, TOKENS, gl.SliceLayout(1, GROUP))
    end = length
    at = index_row
    apart = step
    if HAS_EXTRA:
        is_main = tile < main_tiles
        lanes = gl.where(is_main, tile, tile - main_tiles) * TOKENS + gl.arange(0, TOKENS, gl.SliceLayout(1, GROUP))
        end = gl.where(is_main, length, extra_length)
        at = gl.where(is_main, index_row, extra_index_row)
        apart = gl.where(is_main, step, extra_step)
    return gl.load(at + lanes * apart, mask=lanes < end, other=-1)


@gluon.jit
def _dequantised(raw, scale_bytes, NUMBER: gl.constexpr):
    """One group of 64 fp8 values a token as bf16, scaled by byte NUMBER of its scales."""
    exponent = ((scale_bytes >> (8 * NUMBER)) & 0xFF).to(gl.int32)
    odd = (exponent == 0) | (exponent == 255)
    scale = ((exponent << 7) | gl.where(odd, 0x40, 0)).to(gl.int16).to(gl.bfloat16, bitcast=True)
    values = gl.inline_asm_elementwise(FP8_TO_BF16, "=r,=r,r", [raw], gl.bfloat16, is_pure=True, pack=4)
    return values * gl.expand_dims(scale, 1)


@gluon.jit
def _side_by_side(a, b, TOKENS: gl.constexpr, WIDTH: gl.constexpr):
    """Two blocks of WIDTH columns as one of twice as many: a renaming of registers."""
    return gl.reshape(gl.permute(gl.join(a, b), [0, 2, 1]), [TOKENS, 2 * WIDTH])


@gluon.jit
def _page_of(
    token, tile, main_tiles, kv_ptr, extra_kv_ptr, page_shift, extra_page_shift, page_stride, extra_page_stride,
    HAS_EXTRA: gl.constexpr,
):  # fmt: skip
    """Where the page of each of a tile's tokens starts, the token's slot in it, and how many slots it has."""
    base = kv_ptr
    shift = page_shift
    stride = page_stride
    if HAS_EXTRA:
        is_main = tile < main_tiles
        base = gl.where(is_main, kv_ptr, extra_kv_ptr)
        shift = gl.where(is_main, page_shift, extra_page_shift)
        stride = gl.where(is_main, page_stride, extra_page_stride)
    page_size = 1 << shift
    return base + (token >> shift).to(gl.int64) * stride, token & (page_size - 1), page_size


@gluon.jit
def _scales(page, slot, page_size, token):
    """The eight scale bytes of each token as one int64, 0 where there is no token."""
    scale_at = (page + page_size * DATA_BYTES + slot * SCALE_BYTES).to(gl.pointer_type(gl.int64), bitcast=True)
    return gl.load(scale_at, mask=token >= 0, other=0)


@gluon.jit
def _read(
    tiles, live_lines, ready, free, kv_ptr, extra_kv_ptr, index_row, extra_index_row, step, extra_step,
    length, extra_length, main_tiles, first, last, page_shift, extra_page_shift, page_stride, extra_page_stride,
    TOKENS: gl.constexpr, HAS_EXTRA: gl.constexpr,
):  # fmt: skip
    """The reader's warps: each half of a tile as soon as the tile before the last is done with there."""
    columns = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(0, GROUP)), 0)
    token = _tile_tokens(
        first, main_tiles, length, extra_length, index_row, extra_index_row, step, extra_step, TOKENS, HAS_EXTRA
    )
    next_token = _tile_tokens(
        first + 1, main_tiles, length, extra_length, index_row, extra_index_row, step, extra_step, TOKENS, HAS_EXTRA
    )
    page, slot, page_size = _page_of(
        token, first, main_tiles, kv_ptr, extra_kv_ptr, page_shift, extra_page_shift, page_stride, extra_page_stride,
        HAS_EXTRA,
    )  # fmt: skip
    scale_bytes = _scales(page, slot, page_size, token)
    for tile in range(first, last):
        turn = tile - first
        stage = turn & 1
        page, slot, page_size = _page_of(
            token, tile, main_tiles, kv_ptr, extra_kv_ptr, page_shift, extra_page_shift, page_stride,
            extra_page_stride, HAS_EXTRA,
        )  # fmt: skip
        live = token >= 0
        data = gl.expand_dims(page + slot * DATA_BYTES, 1)
        mask = gl.expand_dims(live, 1)
        raw0 = gl.load(data + columns, mask=mask, other=0)
        raw1 = gl.load(data + (64 + columns), mask=mask, other=0)
        raw2 = gl.load(data + (128 + columns), mask=mask, other=0)
        raw3 = gl.load(data + (192 + columns), mask=mask, other=0)
        raw4 = gl.load(data + (256 + columns), mask=mask, other=0)
        raw5 = gl.load(data + (320 + columns), mask=mask, other=0)
        raw6 = gl.load(data + (384 + columns), mask=mask, other=0)
        rope_at = (data + 448).to(gl.pointer_type(gl.bfloat16), bitcast=True)
        rope = gl.load(rope_at + columns, mask=mask, other=0.0)
        # Scales are read a tile ahead and tokens two: a scale that is used where it is loaded holds up half the loads.
        page, slot, page_size = _page_of(
            next_token, tile + 1, main_tiles, kv_ptr, extra_kv_ptr, page_shift, extra_page_shift, page_stride,
            extra_page_stride, HAS_EXTRA,
        )  # fmt: skip
        next_scales = _scales(page, slot, page_size, next_token)
        after = _tile_tokens(
            tile + 2, main_tiles, length, extra_length, index_row, extra_index_row, step, extra_step, TOKENS, HAS_EXTRA
        )
        mbarrier.wait(free.index(2 * stage), ((turn >> 1) & 1) ^ 1)
        first_half = _side_by_side(_dequantised(raw0, scale_bytes, 0), _dequantised(raw1, scale_bytes, 1), TOKENS, 64)
        second_half = _side_by_side(_dequantised(raw2, scale_bytes, 2), _dequantised(raw3, scale_bytes, 3), TOKENS, 64)
        tiles.index(2 * stage).store(_side_by_side(first_half, second_half, TOKENS, 128))
        live_lines.index(stage).store(live.to(gl.int32))
        fence_async_shared()
        mbarrier.arrive(ready.index(2 * stage), count=1)
        mbarrier.wait(free.index(2 * stage + 1), ((turn >> 1) & 1) ^ 1)
        first_half = _side_by_side(_dequantised(raw4, scale_bytes, 4), _dequantised(raw5, scale_bytes, 5), TOKENS, 64)
        second_half = _side_by_side(_dequantised(raw6, scale_bytes, 6), rope, TOKENS, 64)
        tiles.index(2 * stage + 1).store(_side_by_side(first_half, second_half, TOKENS, 128))
        fence_async_shared()
        mbarrier.arrive(ready.index(2 * stage + 1), count=1)
        token = next_token
        next_token = after
        scale_bytes = next_scales


@gluon.jit
def _store_output(acc, factor, out_ptr, heads, live_heads, FIRST: gl.constexpr):
    """A half of the output's dimensions, [HEADS, 256], at ``out_ptr`` of each head."""
    columns = gl.arange(0, 256, gl.SliceLayout(0, OUTPUT))
    at = gl.expand_dims(out_ptr + heads.to(gl.int64) * 512, 1) + gl.expand_dims(FIRST + columns, 0)
    value = acc * gl.expand_dims(factor, 1)
    gl.store(at, value.to(out_ptr.dtype.element_ty), mask=gl.expand_dims(live_heads, 1))


@gluon.jit
def _score(
    queries_shared, tiles, weights, factors, live_lines, ready, free, handed, taken, scored, first, last, scale_log2,
    q_row, q_stride_h, q_stride_d, out_ptr, lse_ptr, lse_stride, sink_ptr, head, heads,
    HEADS: gl.constexpr, TOKENS: gl.constexpr, HAS_SINK: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """The queries, then the scores, the softmax and the output's first 256 dimensions, tile by tile."""
    offs_h = head + gl.arange(0, HEADS, gl.SliceLayout(1, QUERY))
    live_h = gl.expand_dims(offs_h < heads, 1)
    dims = gl.expand_dims(gl.arange(0, 256, gl.SliceLayout(0, QUERY)), 0)
    q_at = q_row + gl.expand_dims(offs_h.to(gl.int64), 1) * q_stride_h
    queries_shared.index(0).store(gl.load(q_at + dims * q_stride_d, mask=live_h, other=0.0))
    queries_shared.index(1).store(gl.load(q_at + (256 + dims) * q_stride_d, mask=live_h, other=0.0))
    fence_async_shared()
    rows: gl.constexpr = gl.SliceLayout(1, SCORE)
    out_rows: gl.constexpr = gl.SliceLayout(1, OUTPUT)
    peak = gl.full([HEADS], float("-inf"), gl.float32, rows)
    total = gl.full([HEADS], 0.0, gl.float32, rows)
    rounded_total = gl.full([HEADS], 0.0, gl.float32, rows)
    acc = gl.full([HEADS, 256], 0.0, gl.float32, OUTPUT)
    for tile in range(first, last):
        turn = tile - first
        stage = turn & 1
        again = (turn >> 1) & 1
        left = tiles.index(2 * stage)
        right = tiles.index(2 * stage + 1)
        nothing = gl.full([HEADS, TOKENS], 0.0, gl.float32, SCORE)
        mbarrier.wait(ready.index(2 * stage), again)
        score = warpgroup_mma_init(nothing)
        score = warpgroup_mma(queries_shared.index(0), left.permute((1, 0)), score, use_acc=False, is_async=True)
        mbarrier.wait(ready.index(2 * stage + 1), again)
        score = warpgroup_mma(queries_shared.index(1), right.permute((1, 0)), score, is_async=True)
        score = warpgroup_mma_wait(0, deps=[score])
        mbarrier.arrive(scored, count=1)
        live = live_lines.index(stage).load(gl.SliceLayout(0, SCORE)) != 0
        score = gl.where(gl.expand_dims(live, 0), score * scale_log2, float("-inf"))
        new_peak = gl.maximum(peak, gl.ceil(gl.max(score, 1)))
        safe = gl.where(new_peak == float("-inf"), 0.0, new_peak)
        weight = gl.exp2(score - gl.expand_dims(safe, 1))
        alpha = gl.exp2(peak - safe)
        total = total * alpha + gl.sum(weight, 1)
        peak = new_peak
        rounded = gl.inline_asm_elementwise(FP32_TO_BF16, "=r,r,r", [weight], gl.bfloat16, is_pure=True, pack=2)
        mbarrier.wait(taken.index(stage), again ^ 1)
        weights.index(stage).store(rounded)
        factors.index(stage).store(alpha)
        fence_async_shared()
        mbarrier.arrive(handed.index(stage), count=1)
        acc = acc * gl.expand_dims(gl.convert_layout(alpha, out_rows), 1)
        acc = warpgroup_mma(gl.convert_layout(rounded, WEIGHT), left, acc, is_async=True)
        rounded_total = rounded_total * alpha + gl.sum(rounded.to(gl.float32), 1)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(free.index(2 * stage), count=1)

    offs = head + gl.arange(0, HEADS, rows)
    share = gl.full([HEADS], 1.0, gl.float32, rows)
    if SPLIT:
        gl.store(lse_ptr + offs * lse_stride, peak + gl.log2(total), mask=offs < heads)
    else:
        if HAS_SINK:
            sink = gl.load(sink_ptr + offs, mask=offs < heads, other=0.0)
        else:
            sink = gl.full([HEADS], float("-inf"), gl.float32, rows)
        share = _tokens_share(peak, total, sink)
        gl.store(lse_ptr + offs * lse_stride, (peak + gl.log2(total)) * LN2, mask=offs < heads)
    factor = share / gl.where(rounded_total == 0.0, 1.0, rounded_total)
    turns = last - first
    # Not before: a barrier two phases on looks as if it had not moved.
    mbarrier.wait(taken.index(turns & 1), ((turns >> 1) & 1) ^ 1)
    mbarrier.arrive(scored, count=1)
    factors.index(turns & 1).store(factor)
    mbarrier.arrive(handed.index(turns & 1), count=1)
    out_heads = head + gl.arange(0, HEADS, out_rows)
    _store_output(acc, gl.convert_layout(factor, out_rows), out_ptr, out_heads, out_heads < heads, 0)


@gluon.jit
def _second_half(
    tiles, weights, factors, ready, free, handed, taken, scored, first, last, out_ptr, head, heads, HEADS: gl.constexpr
):  # fmt: skip
    """The output's other 256 dimensions, while the first consumer is at the next tile's softmax."""
    out_rows: gl.constexpr = gl.SliceLayout(1, OUTPUT)
    acc = gl.full([HEADS, 256], 0.0, gl.float32, OUTPUT)
    for tile in range(first, last):
        turn = tile - first
        stage = turn & 1
        again = (turn >> 1) & 1
        mbarrier.wait(handed.index(stage), again)
        alpha = factors.index(stage).load(out_rows)
        acc = acc * gl.expand_dims(alpha, 1)
        mbarrier.wait(scored, (turn + 1) & 1)
        mbarrier.wait(ready.index(2 * stage + 1), again)
        acc = warpgroup_mma(weights.index(stage), tiles.index(2 * stage + 1), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(free.index(2 * stage + 1), count=1)
        mbarrier.arrive(taken.index(stage), count=1)
    turns = last - first
    mbarrier.wait(handed.index(turns & 1), (turns >> 1) & 1)
    factor = factors.index(turns & 1).load(out_rows)
    out_heads = head + gl.arange(0, HEADS, out_rows)
    _store_output(acc, factor, out_ptr, out_heads, out_heads < heads, 256)


@gluon.jit(do_not_specialize=DECODE_SCALARS)
def dsv4_sparse_mla_hopper_kernel(
    q_ptr, kv_ptr, index_ptr, length_ptr, extra_kv_ptr, extra_index_ptr, extra_length_ptr, sink_ptr,
    out_ptr, lse_ptr, part_ptr, part_lse_ptr,
    scale_log2, heads, queries, splits, width, extra_width,
    length_stride, extra_length_stride, page_shift, extra_page_shift, page_stride, extra_page_stride,
    q_stride_b, q_stride_s, q_stride_h, q_stride_d,
    index_stride_b, index_stride_s, index_stride_k,
    extra_index_stride_b, extra_index_stride_s, extra_index_stride_k,
    HAS_LENGTH: gl.constexpr, HAS_EXTRA: gl.constexpr, HAS_EXTRA_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr,
    SPLIT: gl.constexpr, HEADS: gl.constexpr, TOKENS: gl.constexpr,
    READER_REGISTERS: gl.constexpr, SECOND_REGISTERS: gl.constexpr, PDL: gl.constexpr,
):  # fmt: skip
    """One program: one head tile of one query row over one split of its tokens."""
    _let_next_start(PDL)
    head_tiles = (heads + HEADS - 1) // HEADS
    program = gl.program_id(0)
    split = (program // head_tiles) % splits
    row = (program // head_tiles // splits).to(gl.int64)
    request = row // queries
    query = row % queries

    length = _attended_length(length_ptr, length_stride, request, width, HAS_LENGTH)
    main_tiles = (length + TOKENS - 1) // TOKENS
    extra_length = length * 0
    if HAS_EXTRA:
        extra_length = _attended_length(extra_length_ptr, extra_length_stride, request, extra_width, HAS_EXTRA_LENGTH)
    extra_tiles = (extra_length + TOKENS - 1) // TOKENS
    share = (main_tiles + extra_tiles + splits - 1) // splits
    first = split * share
    last = gl.minimum(first + share, main_tiles + extra_tiles)
    # The merge reads the splits that have tiles, and no others.
    if SPLIT and first >= last:
        return

    head = (program % head_tiles) * HEADS
    q_row = q_ptr + request * q_stride_b + query * q_stride_s
    queries_shared = gl.allocate_shared_memory(gl.bfloat16, [2, HEADS, 256], TILE_SHARED)
    tiles = gl.allocate_shared_memory(gl.bfloat16, [4, TOKENS, 256], TILE_SHARED)
    weights = gl.allocate_shared_memory(gl.bfloat16, [2, HEADS, TOKENS], TILE_SHARED)
    factors = gl.allocate_shared_memory(gl.float32, [2, HEADS], LINE_SHARED)
    live_lines = gl.allocate_shared_memory(gl.int32, [2, TOKENS], LINE_SHARED)
    ready = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    handed = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    scored = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for half in gl.static_range(4):
        mbarrier.init(ready.index(half), count=1)
        mbarrier.init(free.index(half), count=1)
    for stage in gl.static_range(2):
        mbarrier.init(handed.index(stage), count=1)
        mbarrier.init(taken.index(stage), count=1)
    mbarrier.init(scored, count=1)
    fence_async_shared()

    index_row = index_ptr + request * index_stride_b + query * index_stride_s
    extra_index_row = extra_index_ptr + request * extra_index_stride_b + query * extra_index_stride_s
    if SPLIT:
        part = (row * splits + split) * heads
        out_row = part_ptr + part * 512
        lse_row = part_lse_ptr + part
        lse_stride = 1
    else:
        out_row = out_ptr + row * heads * 512
        lse_row = lse_ptr + request * heads * queries + query
        lse_stride = queries
    gl.warp_specialize(
        [
            (
                _score,
                (
                    queries_shared, tiles, weights, factors, live_lines, ready, free, handed, taken, scored,
                    first, last, scale_log2, q_row, q_stride_h, q_stride_d, out_row, lse_row, lse_stride, sink_ptr,
                    head, heads, HEADS, TOKENS, HAS_SINK, SPLIT,
                ),
            ),
            (
                _second_half,
                (
                    tiles, weights, factors, ready, free, handed, taken, scored, first, last,
                    out_row, head, heads, HEADS,
                ),
            ),
            (
                _read,
                (
                    tiles, live_lines, ready, free, kv_ptr, extra_kv_ptr, index_row, extra_index_row,
                    index_stride_k, extra_index_stride_k, length, extra_length, main_tiles, first, last,
                    page_shift, extra_page_shift, page_stride, extra_page_stride, TOKENS, HAS_EXTRA,
                ),
            ),
        ],
        [4, 4],
        [SECOND_REGISTERS, READER_REGISTERS],
    )  # fmt: skip


TILES = {
    "HEADS": HEADS,
    "TOKENS": TOKENS,
    "READER_REGISTERS": READER_REGISTERS,
    "SECOND_REGISTERS": SECOND_REGISTERS,
}
"""Constants of every launch, as its keywords."""
