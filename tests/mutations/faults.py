"""The faults, as data: what is changed where, and which properties must notice.

Text is replaced once and must occur exactly once. `killers` are tests of tests/correctness, run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

KERNELS = "kernels/dsv4_kernels/"
REFERENCE = KERNELS + "reference/"
MLA = KERNELS + "sparse_mla_kernels.py"
TOPK = KERNELS + "topk_kernels.py"
HC = KERNELS + "hyper_connection.py"
INDEXER = KERNELS + "indexer.py"

MLA_PROPERTY = "test_sparse_mla.py::test_equals_both_oracles"
INDEXER_PROPERTY = "test_indexer.py::test_equals_both_oracles"
TOPK_SELECT = KERNELS + "topk_select.py"
TOPK_PROPERTY = "test_topk.py::test_selects_exactly_what_the_oracle_does"
TOPK_ROWS = "test_topk_gather.py::test_rows_of_every_way_side_by_side"
TOPK_LISTED = "test_topk_gather.py::test_selects_exactly_what_the_oracle_does"
HC_PROPERTY = "test_hc_prenorm.py::test_equals_both_oracles"


@dataclass(frozen=True)
class Fault:
    """`quick` faults run with the ordinary tests; the rest in the tier `mutations`."""

    name: str
    file: str
    old: str
    new: str
    killers: tuple[str, ...]
    quick: bool = False


FAULTS = (
    Fault(
        "mla: the sink is dropped from the denominator", MLA,
        "share = tokens / (tokens + tl.exp2((sink - safe) * LOG2E))",
        "share = tokens / tl.where(tokens > 0.0, tokens, 1.0)",
        (MLA_PROPERTY,),
    ),
    Fault(
        "mla: topk_length is ignored", MLA,
        "length = tl.minimum(tl.maximum(tl.load(length_ptr + request * length_stride), 0), width)",
        "length = width",
        (MLA_PROPERTY,), quick=True,
    ),
    Fault(
        "mla: lse is left in base 2", MLA,
        "lse = (peak + tl.log2(total)) * LN2",
        "lse = peak + tl.log2(total)",
        (MLA_PROPERTY,),
    ),
    Fault(
        "mla: a merged lse is left in base 2", MLA,
        "tl.store(lse_at, (peak + tl.log2(total)) * LN2,",
        "tl.store(lse_at, peak + tl.log2(total),",
        (MLA_PROPERTY, "test_sparse_mla_field_cases.py::test_lse_is_a_natural_logarithm"),
    ),
    Fault(
        "mla: page offsets are 32 bits wide", MLA,
        "page = base + (token >> shift).to(tl.int64) * stride",
        "page = base + ((token >> shift) * stride.to(tl.int32)).to(tl.int32)",
        ("test_sparse_mla_field_cases.py::test_pages_past_2_31_bytes",),
    ),
    Fault(
        "mla: a group takes its neighbour's scale", MLA,
        "shifts = (FIRST + tl.arange(0, GROUPS)) * 8",
        "shifts = ((FIRST + tl.arange(0, GROUPS)) ^ 1) * 8",
        (MLA_PROPERTY,),
    ),
    Fault(
        "mla: tokens are read one page on", MLA,
        "page = base + (token >> shift).to(tl.int64) * stride",
        "page = base + tl.maximum((token >> shift) - 1, 0).to(tl.int64) * stride",
        (MLA_PROPERTY,),
    ),
    Fault(
        "mla: one lane past the length counts", MLA,
        "token = tl.load(index_at + lanes * index_step, mask=lanes < lane_end, other=-1)",
        "token = tl.load(index_at + lanes * index_step, mask=lanes < tl.minimum(lane_end + 1, width), other=-1)",
        (MLA_PROPERTY,),
    ),
    Fault(
        "mla: the merge adds splits without rescaling what it has", MLA,
        "total = total * alpha + tl.sum(weight, 0)",
        "total = total + tl.sum(weight, 0)",
        ("test_sparse_mla_merge.py::test_more_splits_than_the_merge_reads_at_a_time",),
    ),
    Fault(
        "mla: the softmax is not kept in range", MLA,
        "safe = tl.where(new_peak == float(\"-inf\"), 0.0, new_peak)\n        weight = tl.exp2(score - safe[:, None])",
        "safe = new_peak\n        weight = tl.exp2(score - safe[:, None])",
        (MLA_PROPERTY,),
    ),
    Fault(
        "indexer: negative head scores count", INDEXER,
        "positive = tl.maximum(dot, 0.0, propagate_nan=tl.PropagateNan.ALL)",
        "positive = dot",
        (INDEXER_PROPERTY,), quick=True,
    ),
    Fault(
        "indexer: a token takes its neighbour's scale", INDEXER,
        "scale_ptr + page * scale_stride + (PAGE * HEAD_DIM // 4) + slot, mask=live",
        "scale_ptr + page * scale_stride + (PAGE * HEAD_DIM // 4) + (slot ^ 1), mask=live",
        (INDEXER_PROPERTY,),
    ),
    Fault(
        "indexer: every token of a page is its first", INDEXER,
        "k_ptr + (page * page_stride + slot * HEAD_DIM)[:, None] + dims[None, :]",
        "k_ptr + (page * page_stride + slot * 0)[:, None] + dims[None, :]",
        (INDEXER_PROPERTY,),
    ),
    Fault(
        "indexer: the last tiles are lost in the division", INDEXER,
        "share = (total + tl.num_programs(0) - 1) // tl.num_programs(0)",
        "share = tl.maximum(total // tl.num_programs(0), 1)",
        (INDEXER_PROPERTY,),
    ),
    Fault(
        "indexer: page offsets are 32 bits wide", INDEXER,
        "mask=live, other=0).to(tl.int64)",
        "mask=live, other=0)",
        ("test_indexer.py::test_pages_past_2_31_bytes",),
    ),
    Fault(
        "indexer: one position past the length is not cleaned", INDEXER,
        "mask=(tokens >= length) & (tokens < max_length),",
        "mask=(tokens > length) & (tokens < max_length),",
        (INDEXER_PROPERTY,),
    ),
    Fault(
        "topk: negative scores are ordered backwards", KERNELS + "topk_device.py",
        "key = bits ^ ((bits >> 31) & 0x7FFFFFFF)",
        "key = bits",
        (TOPK_PROPERTY,), quick=True,
    ),
    Fault(
        "topk: the first slot past the length is not written", KERNELS + "topk_device.py",
        "rest = (index >= length) & (index < k)",
        "rest = (index > length) & (index < k)",
        (TOPK_PROPERTY,),
    ),
    Fault(
        "topk: the slot within the page is lost", KERNELS + "topk_device.py",
        "page * page_size + index % page_size",
        "page * page_size",
        (TOPK_PROPERTY,),
    ),
    Fault(
        "topk: the groups' maxima are those of their first run", TOPK,
        "for run in tl.static_range(RUNS):",
        "for run in tl.static_range(1):",
        (TOPK_ROWS, TOPK_LISTED),
    ),
    Fault(
        "topk: the first group of a row is not listed", TOPK,
        "    hit = maxima > floor\n",
        "    hit = (maxima > floor) & (group > 0)\n",
        (TOPK_ROWS, TOPK_LISTED),
    ),
    Fault(
        "topk: scores equal to the k-th are taken where they lie, not in order of the row", TOPK_SELECT,
        "place = tl.where(keys == floor, entry, 0x7FFFFFFF)",
        "place = tl.where(keys == floor, entry // 2, 0x7FFFFFFF)",
        (TOPK_ROWS, TOPK_LISTED),
    ),
    Fault(
        "topk: what is below a crowded floor is not looked for", TOPK_SELECT,
        "while (start < length) & (wanted > 0):",
        "while (start < length) & (wanted > 1):",
        (TOPK_ROWS, TOPK_LISTED),
    ),
    Fault(
        "hc: the middle bits of the weights are dropped", HC,
        "        block = tl.dot(x, tl.trans(middle), block)\n",
        "",
        (HC_PROPERTY,),
    ),
    Fault(
        "hc: the lowest bits of the weights are dropped", HC,
        "block = tl.dot(x, tl.trans(low))",
        "block = tl.zeros((BLOCK_TOKENS, LANES), tl.float32)",
        ("test_hc_prenorm.py::test_weights_keep_all_their_bits",),
    ),
    Fault(
        "hc: the last split is not merged", HC,
        "live = first + entry[None, :] // LANES < tokens",
        "live = (first + entry[None, :] // LANES < tokens) & (split < SPLITS - 1)[:, None]",
        (HC_PROPERTY,),
    ),
    Fault(
        "hc: eps is divided by the width", HC,
        "tl.rsqrt(squares / width + eps)",
        "tl.rsqrt((squares + eps) / width)",
        (HC_PROPERTY,),
    ),
    Fault(
        "oracle: the indexer's scales are rounded to powers of two", REFERENCE + "indexer.py",
        "return keys.reshape(-1, HEAD_DIM), scales.reshape(-1)",
        "return keys.reshape(-1, HEAD_DIM), torch.exp2(torch.floor(torch.log2(scales.reshape(-1))))",
        (INDEXER_PROPERTY,),
    ),
)  # fmt: skip
