"""A trace proves the patches only by what graph replay ran, layer for layer; what was launched one by one proves nothing."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from perfgate.patch_proof import calls_a_step
from perfgate.trace_proof import OURS, REPLACED, check_trace

STEP = calls_a_step((0, 0, 4, 128, 4, 128))
FILLER = ("void at::native::elementwise_kernel",) * 12
DECODE, INDEXER, TOPK, HC = (
    "dsv4_sparse_mla_decode_kernel",
    "dsv4_paged_mqa_logits_kernel",
    "dsv4_topk_gather_kernel",
    "dsv4_hc_combine_kernel",
)
WHOLE = (*[DECODE] * 6, *[INDEXER] * 2, *[TOPK] * 2, *[HC] * 12, *FILLER)
ALL = ("sparse_mla", "indexer", "topk", "hc_prenorm")


def trace(*launches: Iterable[str], single: Iterable[str] = ()) -> dict[str, object]:
    """A trace of graph launches, each with its kernels' names, after kernels that were launched one by one."""
    numbers = itertools.count(100)
    groups = [*([name] for name in single), *launches]
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": 1.0 * i, "dur": 0.5, "args": {"correlation": number}}
        for number, group in zip(numbers, groups, strict=False)
        for i, name in enumerate(group)
    ]
    return {"traceEvents": [*events, {"ph": "X", "cat": "cpu_op", "name": DECODE}]}


def kinds(problems):
    return [p.kind for p in problems]


def test_replayed_steps_with_our_kernels_and_without_the_replaced_ones_prove_the_replay():
    prefill = (*WHOLE, "flash_fwd_sparse_prefill")
    assert check_trace(trace(WHOLE, WHOLE, single=prefill), ALL, STEP) == []


def test_kernels_of_the_eager_prefill_prove_no_replay():
    replayed = (*[DECODE] * 6, *FILLER, *FILLER)
    problems = check_trace(trace(replayed, single=WHOLE), ALL, STEP)
    assert [(p.kind, p.patch) for p in problems] == [("NOT_IN_TRACE", p) for p in ("indexer", "topk", "hc_prenorm")]
    assert kinds(check_trace(trace(single=WHOLE * 3), ALL, STEP)) == ["NOT_IN_TRACE"] * 4


def test_a_step_that_lacks_the_kernel_in_one_layer_is_not_proved():
    (problem,) = check_trace(trace(WHOLE[1:]), ALL, STEP)
    assert (problem.kind, problem.patch) == ("NOT_IN_TRACE", "sparse_mla")
    assert "5 of 6" in problem.message


def test_segments_of_a_prefill_that_is_replayed_between_its_attentions_make_no_step():
    segment = (HC, HC, INDEXER, TOPK, *FILLER)
    seen = trace(*[segment] * 6, [DECODE] * 12)
    assert [p.patch for p in check_trace(seen, ALL, STEP)] == ["indexer", "topk", "hc_prenorm"]
    assert [p.patch for p in check_trace(seen, ALL, {})] == ["sparse_mla"]


def test_kernels_without_a_launchs_number_are_no_launch():
    without = trace(WHOLE)
    for event in without["traceEvents"]:
        event.pop("args", None)
    assert len(check_trace(without, ALL, STEP)) == 4
    for event in without["traceEvents"]:
        event["args"] = {"correlation": 0}
    assert len(check_trace(without, ALL, STEP)) == 4


def test_where_the_layers_are_not_known_one_kernel_a_step_is_asked_for():
    assert check_trace(trace((DECODE, *FILLER)), ["sparse_mla"], {}) == []


@pytest.mark.field_case("R08")
def test_a_top_k_that_gave_way_to_torchs_own_is_not_in_the_trace():
    general = ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2>", "void at::native::radixSortKVInPlace")
    (problem,) = check_trace(trace((*general, *FILLER)), ["topk"], STEP)
    assert problem.kind == "NOT_IN_TRACE"
    assert "dsv4_topk_gather_kernel" in problem.message


def test_a_trace_without_our_kernel_proves_nothing():
    assert kinds(check_trace(trace(FILLER), ["sparse_mla"], STEP)) == ["NOT_IN_TRACE"]
    assert kinds(check_trace({}, ["sparse_mla", "topk"], STEP)) == ["NOT_IN_TRACE", "NOT_IN_TRACE"]


@pytest.mark.parametrize(
    ("patch", "replaced"),
    [
        ("sparse_mla", "void sm90::decode::sparse_fp8::flash_fwd_kernel<KernelTemplate<1, 64>>"),
        ("indexer", "void deep_gemm::sm90_fp8_paged_mqa_logits<64, 128>(unsigned int)"),
        ("topk", "void topk_main_kernel<true>(TopKLaunchParams)"),
        ("hc_prenorm", "mhc_pre_big_fuse_with_norm_tilelang_kernel"),
        ("hc_prenorm", "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24, 16384>"),
    ],
)
def test_a_replaced_kernel_in_the_trace_is_named_replayed_or_not(patch, replaced):
    for seen in (trace((*WHOLE, replaced)), trace(WHOLE, single=[replaced])):
        (problem,) = check_trace(seen, [patch], STEP)
        assert problem.kind == "REPLACED_IN_TRACE"
        assert problem.evidence == (replaced,)


def test_the_kernels_looked_for_are_ours_and_pass_for_none_that_they_replace():
    folder = Path(importlib.util.find_spec("dsv4_kernels").origin).parent
    defined = {
        name for file in folder.rglob("*.py") for name in re.findall(r"^def (\w+_kernel)\(", file.read_text(), re.M)
    }
    wanted = {name for patch, names in OURS.items() if not patch.startswith("fallback") for name in names}
    assert wanted <= defined, "a kernel was renamed: the proof would never find it"
    assert not [name for name in defined for pattern in REPLACED.values() if re.search(pattern, name)]
