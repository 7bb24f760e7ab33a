"""Does graph replay run the patches? From a profiler's trace of decode steps (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from perfgate import busy
from perfgate.patch_proof import ProofProblem

OURS: Mapping[str, tuple[str, ...]] = {
    "sparse_mla": ("dsv4_sparse_mla_decode_kernel", "dsv4_sparse_mla_hopper_kernel"),
    "indexer": ("dsv4_paged_mqa_logits_kernel",),
    "topk": ("dsv4_topk_gather_kernel",),
    "hc_prenorm": ("dsv4_hc_combine_kernel",),
    "fallback_sparse_mla": ("_tiled_sparse_decode_kernel",),
}
"""Names of kernels, one of which is launched at each call of the patch. The torch indexer has none of its own."""

REPLACED: Mapping[str, str] = {
    "sparse_mla": r"sm90::decode::sparse_fp8|_tiled_sparse_decode_kernel",
    "indexer": r"fp8_paged_mqa_logits",
    "topk": r"topk_transform_kernel|topk_main_kernel|topk_small_batch|topk_persistent_cluster",
    "hc_prenorm": r"hc_prenorm_gemm|mhc_pre_|mhc_fused_post_pre",
    "fallback_sparse_mla": r"sm90::decode::sparse_fp8",
    "fallback_indexer": r"fp8_paged_mqa_logits",
}
"""Kernels that a patch takes the place of: flashmla_ops.so's symbols, DeepGEMM's and SGLang's JIT sources, mhc.py."""


def kernel_names(trace: Mapping[str, Any]) -> set[str]:
    """Names of the GPU kernels in a torch profiler trace (Chrome's format: ``traceEvents`` of category ``kernel``)."""
    events = trace.get("traceEvents", [])
    return {str(e.get("name")) for e in events if isinstance(e, Mapping) and str(e.get("cat", "")).lower() == "kernel"}


def check_trace(
    trace: Mapping[str, Any],
    required: Iterable[str],
    a_step: Mapping[str, int],
    ours: Mapping[str, tuple[str, ...]] = OURS,
) -> list[ProofProblem]:
    """One graph launch of a trace holds our kernels of every patch, and what they replace runs nowhere in it.

    ``a_step`` is the result of patch_proof.calls_a_step: so many kernels of a patch a step needs at least, one where it is
    not known. A step that is replayed is one launch; kernels that were launched one by one, as prefill's are, and launches
    that hold a part of a step, prove nothing. Nor does an empty trace.
    """
    patches = list(required)
    needed = {patch: max(1, a_step.get(patch, 0)) for patch in patches if ours.get(patch)}
    steps = [Counter(str(e.get("name")) for e in launch) for launch in busy.launches(trace)]
    held = [{patch: sum(step[mark] for mark in ours[patch]) for patch in needed} for step in steps]
    best = max(
        held, key=lambda step: sum(step[patch] >= n for patch, n in needed.items()), default=dict.fromkeys(needed, 0)
    )
    names, problems = kernel_names(trace), []
    for patch in patches:
        if patch in needed and best[patch] < needed[patch]:
            text = (
                f"of {patch}'s kernels ({', '.join(ours[patch])}) the best of {len(steps)} graph launches in the trace "
                f"holds {best[patch]} of {needed[patch]}"
            )
            problems.append(ProofProblem("NOT_IN_TRACE", patch, text))
        pattern = REPLACED.get(patch)
        left = tuple(sorted(n for n in names if pattern and re.search(pattern, n)))
        if left:
            text = f"{patch} is asked for, and what it replaces still runs"
            problems.append(ProofProblem("REPLACED_IN_TRACE", patch, text, left))
    return problems
