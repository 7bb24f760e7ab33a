"""The device code of the sparse-MLA decode: one split of one row's tokens, and the merge of splits.

Keys are values in MLA, so a tile of tokens is read and dequantised once and serves both products of all heads of a head
tile. The 512 dimensions are held as four times 128, the last of them 64 fp8 and 64 bf16 dimensions: equal shapes get
equal register layouts, so that the softmax weights are rearranged once for all four products. Softmax is in base 2
inside; what leaves the kernels is in base e.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .pdl import let_next_start, wait_for_previous

DATA_BYTES = tl.constexpr(576)
SCALE_BYTES = tl.constexpr(8)
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)
# Scalars that differ from call to call: specialised for values of 1 and multiples of 16, each new combination would be
# compiled, for a second, in the middle of serving. Strides that decide how loads are vectorised stay specialised.
DECODE_SCALARS = (
    "heads", "queries", "splits", "width", "extra_width", "length_stride", "extra_length_stride",
    "page_shift", "extra_page_shift", "index_stride_b", "index_stride_s", "extra_index_stride_b", "extra_index_stride_s",
)  # fmt: skip
MERGE_SCALARS = ("heads", "queries", "splits", "width", "extra_width", "length_stride", "extra_length_stride")


@triton.jit
def _attended_length(length_ptr, length_stride, request, width, HAS_LENGTH: tl.constexpr):
    """Lanes of a row that may hold a token: its length, kept within 0 and the width of the index tensor."""
    length = width
    if HAS_LENGTH:
        length = tl.minimum(tl.maximum(tl.load(length_ptr + request * length_stride), 0), width)
    return length


@triton.jit
def _tiles_per_split(main_tiles, extra_tiles, splits):
    """Tiles exist up to a row's lengths alone, and are dealt out evenly: splits past the last tile stay empty."""
    return (main_tiles + extra_tiles + splits - 1) // splits


# Four fp8 values to bf16, by way of fp16 (what the hardware unpacks to) and fp32 (from where it packs pairs of bf16):
# NaN stays NaN. Triton's own conversion takes one value at a time, on a unit of a sixteenth of the rate.
FP8_TO_BF16 = tl.constexpr(
    "{.reg .b16 a, b, c, d, e, f; .reg .b32 x, y; .reg .f32 p, q, r, s;"
    " mov.b32 {a, b}, $2; cvt.rn.f16x2.e4m3x2 x, a; cvt.rn.f16x2.e4m3x2 y, b;"
    " mov.b32 {c, d}, x; mov.b32 {e, f}, y;"
    " cvt.f32.f16 p, c; cvt.f32.f16 q, d; cvt.f32.f16 r, e; cvt.f32.f16 s, f;"
    " cvt.rn.bf16x2.f32 $0, q, p; cvt.rn.bf16x2.f32 $1, s, r;}"
)
FP32_TO_BF16 = tl.constexpr("cvt.rn.bf16x2.f32 $0, $2, $1;")


@triton.jit
def _dequantise(
    raw, scale_bytes, FIRST: tl.constexpr, GROUPS: tl.constexpr, BLOCK_N: tl.constexpr, INTERPRET: tl.constexpr
):  # fmt: skip
    """fp8 bytes [BLOCK_N, 64*GROUPS] times their ue8m0 scales, which are bytes FIRST.. of an int64 a token.

    A ue8m0 byte is the exponent field of a float: it is shifted into place. 0 and 255 stand for 2**-127 and NaN, which
    as floats need their top mantissa bit set.
    """
    shifts = (FIRST + tl.arange(0, GROUPS)) * 8
    exponent = ((scale_bytes[:, None] >> shifts[None, :]) & 0xFF).to(tl.int32)
    odd = (exponent == 0) | (exponent == 255)
    if INTERPRET:
        scale = ((exponent << 23) | tl.where(odd, 0x400000, 0)).to(tl.float32, bitcast=True)
        values = raw.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    else:
        scale = ((exponent << 7) | tl.where(odd, 0x40, 0)).to(tl.int16).to(tl.bfloat16, bitcast=True)
        values = tl.inline_asm_elementwise(FP8_TO_BF16, "=r,=r,r", [raw], tl.bfloat16, is_pure=True, pack=4)
    grouped = tl.reshape(values, [BLOCK_N, GROUPS, 64]) * scale[:, :, None]
    return tl.reshape(grouped, [BLOCK_N, 64 * GROUPS])


@triton.jit
def _round(values, KIND: tl.constexpr, INTERPRET: tl.constexpr):
    """fp32 to bf16, to nearest even; the interpreter (triton 3.8) cuts the low bits off instead, so it is helped."""
    if INTERPRET and KIND == tl.bfloat16:  # noqa: SIM300
        bits = values.to(tl.int32, bitcast=True)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
        values = tl.where(values == values, nearest.to(tl.float32, bitcast=True), values)
    return values.to(KIND)


@triton.jit
def _tokens_share(peak, total, sink):
    """Share of the softmax that is the tokens' and not the sink's: total*2**peak against exp(sink), 0 to 1.

    A row without tokens and a sink of +inf both give 0. Differences are taken before the change of base: a compiler
    fuses sink*LOG2E - highest*LOG2E into one multiply-add, whose rounding error alone overflows for a sink of 1e38.
    """
    natural = peak * LN2
    highest = tl.maximum(natural, sink)
    finite = (highest > float("-inf")) & (highest < float("inf"))
    safe = tl.where(finite, highest, 0.0)
    tokens = tl.where(peak > float("-inf"), total * tl.exp2((natural - safe) * LOG2E), 0.0)
    share = tokens / (tokens + tl.exp2((sink - safe) * LOG2E))
    return tl.where((total == 0.0) | (sink == float("inf")), 0.0, share)


@triton.jit(do_not_specialize=DECODE_SCALARS)
def dsv4_sparse_mla_decode_kernel(
    q_ptr, kv_ptr, index_ptr, length_ptr, extra_kv_ptr, extra_index_ptr, extra_length_ptr, sink_ptr,
    out_ptr, lse_ptr, part_ptr, part_lse_ptr,
    scale_log2, heads, queries, splits, width, extra_width,
    length_stride, extra_length_stride, page_shift, extra_page_shift, page_stride, extra_page_stride,
    q_stride_b, q_stride_s, q_stride_h, q_stride_d,
    index_stride_b, index_stride_s, index_stride_k,
    extra_index_stride_b, extra_index_stride_s, extra_index_stride_k,
    HAS_LENGTH: tl.constexpr, HAS_EXTRA: tl.constexpr, HAS_EXTRA_LENGTH: tl.constexpr, HAS_SINK: tl.constexpr,
    SPLIT: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr, PDL: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """One program: one head tile of one query row over one split of its tokens."""
    let_next_start(PDL)
    head_tiles = (heads + BLOCK_H - 1) // BLOCK_H
    program = tl.program_id(0)
    split = (program // head_tiles) % splits
    row = (program // head_tiles // splits).to(tl.int64)
    request = row // queries
    query = row % queries

    length = _attended_length(length_ptr, length_stride, request, width, HAS_LENGTH)
    main_tiles = (length + BLOCK_N - 1) // BLOCK_N
    extra_length = 0
    if HAS_EXTRA:
        extra_length = _attended_length(extra_length_ptr, extra_length_stride, request, extra_width, HAS_EXTRA_LENGTH)
    extra_tiles = (extra_length + BLOCK_N - 1) // BLOCK_N
    share = _tiles_per_split(main_tiles, extra_tiles, splits)
    first = split * share
    last = tl.minimum(first + share, main_tiles + extra_tiles)
    # The merge reads the splits that have tiles, and no others.
    if SPLIT and first >= last:
        return

    offs_h = (program % head_tiles) * BLOCK_H + tl.arange(0, BLOCK_H)
    live_h = offs_h < heads
    q_row = q_ptr + request * q_stride_b + query * q_stride_s + offs_h[:, None].to(tl.int64) * q_stride_h
    dims = tl.arange(0, 128)
    half = tl.arange(0, 64)
    q0 = tl.load(q_row + dims[None, :] * q_stride_d, mask=live_h[:, None], other=0.0)
    q1 = tl.load(q_row + (128 + dims[None, :]) * q_stride_d, mask=live_h[:, None], other=0.0)
    q2 = tl.load(q_row + (256 + dims[None, :]) * q_stride_d, mask=live_h[:, None], other=0.0)
    q3 = tl.load(q_row + (384 + dims[None, :]) * q_stride_d, mask=live_h[:, None], other=0.0)
    if INTERPRET:
        q0, q1, q2, q3 = q0.to(tl.float32), q1.to(tl.float32), q2.to(tl.float32), q3.to(tl.float32)

    peak = tl.full([BLOCK_H], float("-inf"), tl.float32)
    total = tl.full([BLOCK_H], 0.0, tl.float32)
    rounded_total = tl.full([BLOCK_H], 0.0, tl.float32)
    acc0 = tl.full([BLOCK_H, 128], 0.0, tl.float32)
    acc1 = tl.full([BLOCK_H, 128], 0.0, tl.float32)
    acc2 = tl.full([BLOCK_H, 128], 0.0, tl.float32)
    acc3 = tl.full([BLOCK_H, 128], 0.0, tl.float32)

    offs_n = tl.arange(0, BLOCK_N)
    index_row = index_ptr + request * index_stride_b + query * index_stride_s
    extra_index_row = extra_index_ptr + request * extra_index_stride_b + query * extra_index_stride_s
    for tile in tl.range(first, last):
        # Main and extra tokens share one loop: what differs is a handful of scalars.
        lanes = tile * BLOCK_N + offs_n
        lane_end = length
        index_at = index_row
        index_step = index_stride_k
        base = kv_ptr
        shift = page_shift
        stride = page_stride
        if HAS_EXTRA:
            is_main = tile < main_tiles
            lanes = tl.where(is_main, tile, tile - main_tiles) * BLOCK_N + offs_n
            lane_end = tl.where(is_main, length, extra_length)
            index_at = tl.where(is_main, index_row, extra_index_row)
            index_step = tl.where(is_main, index_stride_k, extra_index_stride_k)
            base = tl.where(is_main, kv_ptr, extra_kv_ptr)
            shift = tl.where(is_main, page_shift, extra_page_shift)
            stride = tl.where(is_main, page_stride, extra_page_stride)
        token = tl.load(index_at + lanes * index_step, mask=lanes < lane_end, other=-1)
        live = token >= 0
        page_size = 1 << shift
        page = base + (token >> shift).to(tl.int64) * stride
        slot = token & (page_size - 1)
        data = page + slot * DATA_BYTES
        # Lanes without a token read nothing and are exact zeros as keys and as values: 0 * NaN never happens.
        raw0 = tl.load(data[:, None] + dims[None, :], mask=live[:, None], other=0)
        raw1 = tl.load(data[:, None] + (128 + dims)[None, :], mask=live[:, None], other=0)
        raw2 = tl.load(data[:, None] + (256 + dims)[None, :], mask=live[:, None], other=0)
        raw3 = tl.load(data[:, None] + (384 + half)[None, :], mask=live[:, None], other=0)
        rope_at = (data + 448).to(tl.pointer_type(tl.bfloat16), bitcast=True)
        rope = tl.load(rope_at[:, None] + half[None, :], mask=live[:, None], other=0.0)
        scale_at = (page + page_size * DATA_BYTES + slot * SCALE_BYTES).to(tl.pointer_type(tl.int64), bitcast=True)
        scale_bytes = tl.load(scale_at, mask=live, other=0)
        k0 = _dequantise(raw0, scale_bytes, 0, 2, BLOCK_N, INTERPRET)
        k1 = _dequantise(raw1, scale_bytes, 2, 2, BLOCK_N, INTERPRET)
        k2 = _dequantise(raw2, scale_bytes, 4, 2, BLOCK_N, INTERPRET)
        nope = _dequantise(raw3, scale_bytes, 6, 1, BLOCK_N, INTERPRET)
        k3 = tl.join(nope, rope.to(nope.dtype))
        k3 = tl.reshape(tl.permute(k3, [0, 2, 1]), [BLOCK_N, 128])

        score = tl.dot(q0, tl.trans(k0))
        score = tl.dot(q1, tl.trans(k1), score)
        score = tl.dot(q2, tl.trans(k2), score)
        score = tl.dot(q3, tl.trans(k3), score)
        score = tl.where(live[None, :], score * scale_log2, float("-inf"))
        # Weights are relative to a whole power of two, so that their rounding to bf16 depends neither on the order of
        # tiles nor on the number of splits. Until a row has met a token its peak is -inf, and -inf - -inf is NaN.
        new_peak = tl.maximum(peak, tl.ceil(tl.max(score, 1)))
        safe = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        weight = tl.exp2(score - safe[:, None])
        alpha = tl.exp2(peak - safe)
        total = total * alpha + tl.sum(weight, 1)
        peak = new_peak
        if INTERPRET:
            rounded = _round(weight, tl.bfloat16, INTERPRET).to(tl.float32)
        else:
            rounded = tl.inline_asm_elementwise(FP32_TO_BF16, "=r,r,r", [weight], tl.bfloat16, is_pure=True, pack=2)
        # The output is divided by the sum of the weights as rounded, so that a common rounding error cancels.
        rounded_total = rounded_total * alpha + tl.sum(rounded.to(tl.float32), 1)
        acc0 = tl.dot(rounded, k0, acc0 * alpha[:, None])
        acc1 = tl.dot(rounded, k1, acc1 * alpha[:, None])
        acc2 = tl.dot(rounded, k2, acc2 * alpha[:, None])
        acc3 = tl.dot(rounded, k3, acc3 * alpha[:, None])

    if SPLIT:
        share = tl.full([BLOCK_H], 1.0, tl.float32)
        part = (row * splits + split) * heads + offs_h
        at = part_ptr + part[:, None] * 512
        tl.store(part_lse_ptr + part, peak + tl.log2(total), mask=live_h)
    else:
        sink = tl.full([BLOCK_H], float("-inf"), tl.float32)
        if HAS_SINK:
            sink = tl.load(sink_ptr + offs_h, mask=live_h, other=0.0)
        share = _tokens_share(peak, total, sink)
        at = out_ptr + (row * heads + offs_h)[:, None] * 512
        lse = (peak + tl.log2(total)) * LN2
        tl.store(lse_ptr + (request * heads + offs_h) * queries + query, lse, mask=live_h)
    factor = share / tl.where(rounded_total == 0.0, 1.0, rounded_total)
    kind: tl.constexpr = at.dtype.element_ty
    tl.store(at + dims[None, :], _round(acc0 * factor[:, None], kind, INTERPRET), mask=live_h[:, None])
    tl.store(at + (128 + dims)[None, :], _round(acc1 * factor[:, None], kind, INTERPRET), mask=live_h[:, None])
    tl.store(at + (256 + dims)[None, :], _round(acc2 * factor[:, None], kind, INTERPRET), mask=live_h[:, None])
    tl.store(at + (384 + dims)[None, :], _round(acc3 * factor[:, None], kind, INTERPRET), mask=live_h[:, None])


@triton.jit(do_not_specialize=MERGE_SCALARS)
def dsv4_sparse_mla_merge_kernel(
    part_ptr, part_lse_ptr, length_ptr, extra_length_ptr, sink_ptr, out_ptr, lse_ptr,
    heads, queries, splits, width, extra_width, length_stride, extra_length_stride,
    HAS_LENGTH: tl.constexpr, HAS_EXTRA: tl.constexpr, HAS_EXTRA_LENGTH: tl.constexpr, HAS_SINK: tl.constexpr,
    BLOCK_N: tl.constexpr, HEADS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_S: tl.constexpr, PDL: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """One program: COLUMNS of the 512 output dimensions of HEADS heads of a query row, summed over splits in order."""
    wait_for_previous(PDL)
    program = tl.program_id(0)
    head_tiles = (heads + HEADS - 1) // HEADS
    column_tile = program % (512 // COLUMNS)
    columns = column_tile * COLUMNS + tl.arange(0, COLUMNS)
    offs_h = program // (512 // COLUMNS) % head_tiles * HEADS + tl.arange(0, HEADS)
    live_h = offs_h < heads
    row = (program // (512 // COLUMNS) // head_tiles).to(tl.int64)
    request = row // queries
    query = row % queries
    length = _attended_length(length_ptr, length_stride, request, width, HAS_LENGTH)
    main_tiles = (length + BLOCK_N - 1) // BLOCK_N
    extra_tiles = 0
    if HAS_EXTRA:
        extra_length = _attended_length(extra_length_ptr, extra_length_stride, request, extra_width, HAS_EXTRA_LENGTH)
        extra_tiles = (extra_length + BLOCK_N - 1) // BLOCK_N
    share = tl.maximum(_tiles_per_split(main_tiles, extra_tiles, splits), 1)
    used = (main_tiles + extra_tiles + share - 1) // share

    peak = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.full([HEADS], 0.0, tl.float32)
    acc = tl.full([HEADS, COLUMNS], 0.0, tl.float32)
    for start in tl.range(0, used, BLOCK_S):
        parts = start + tl.arange(0, BLOCK_S)
        at = (row * splits + parts[:, None]) * heads + offs_h[None, :]
        live = (parts < used)[:, None] & live_h[None, :]
        lse = tl.load(part_lse_ptr + at, mask=live, other=float("-inf"))
        values = tl.load(part_ptr + at[:, :, None] * 512 + columns[None, None, :], mask=live[:, :, None], other=0.0)
        new_peak = tl.maximum(peak, tl.max(lse, 0))
        safe = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        alpha = tl.exp2(peak - safe)
        weight = tl.exp2(lse - safe[None, :])
        total = total * alpha + tl.sum(weight, 0)
        acc = acc * alpha[:, None] + tl.sum(values * weight[:, :, None], 0)
        peak = new_peak

    sink = tl.full([HEADS], float("-inf"), tl.float32)
    if HAS_SINK:
        sink = tl.load(sink_ptr + offs_h, mask=live_h, other=0.0)
    factor = _tokens_share(peak, total, sink) / tl.where(total == 0.0, 1.0, total)
    out_at = out_ptr + (row * heads + offs_h)[:, None] * 512 + columns[None, :]
    tl.store(out_at, _round(acc * factor[:, None], tl.bfloat16, INTERPRET), mask=live_h[:, None])
    lse_at = lse_ptr + (request * heads + offs_h) * queries + query
    tl.store(lse_at, (peak + tl.log2(total)) * LN2, mask=live_h & (column_tile == 0))
