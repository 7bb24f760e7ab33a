"""Advice where memory ran out: which memory, which setting, and in which direction."""

from __future__ import annotations

import re
from dataclasses import replace

from perfgate.diagnosis import sizes
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.faults import Fault
from perfgate.diagnosis.scan import Scan

_SUGGESTED = re.compile(r"Raise --mem-fraction-static above (\d?\.\d{1,6})")
_CURRENT = re.compile(r"mem[-_]fraction[-_]static=(\d?\.\d{1,6})")
_COUNT = re.compile(r"#(new-token|pending-token): (\d{1,12})")

NO_FRACTION = (
    "No feasible fraction: the KV cache does not fit at the lower --mem-fraction-static and the GPU runs out of"
    " memory at the"
    " higher one. Moving it between them cannot help; spread the model over more GPUs (--tp), quantise it"
    " further, or shrink"
    " what lies outside the fraction (--cuda-graph-max-bs, --chunked-prefill-size, --max-running-requests)."
)
GRAPH_FLAG = "--cuda-graph-max-bs (--cuda-graph-max-bs-decode in newer versions)"


def kv_budget(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    """RAISE the fraction: the weights left no room for the KV cache within it."""
    details = dict(diagnosis.details)
    body = first.hit.body
    if current := _CURRENT.search(body):
        details["mem_fraction_static"] = float(current.group(1))
    elif scan.facts.fractions:
        details["mem_fraction_static"] = scan.facts.fractions[-1]
    if any(fault.cause is Cause.GPU_OOM and fault.phase != "serving" for fault in found):
        return replace(diagnosis, details=details, advice=NO_FRACTION)
    text = "RAISE --mem-fraction-static: the weights leave no room for the KV cache within it"
    if suggested := _SUGGESTED.search(body):
        details["suggested_mem_fraction_static"] = float(suggested.group(1))
        text += f"; SGLang names {suggested.group(1)} as the least that works"
    text += "."
    if "draft" in body:
        text += " With speculative decoding the draft model's weights count too."
    return replace(diagnosis, details=details, advice=text)


def kv_pool(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    """The KV pool was too small for what ran."""
    if "alloc_req_slots" in first.hit.body:
        text = "More requests ran than the request pool has slots: lower --max-running-requests or the concurrency."
    else:
        text = (
            "The KV pool has too few tokens for this concurrency and these lengths: raise --mem-fraction-static (or"
            " --max-total-tokens), or lower --max-running-requests."
        )
        if diagnosis.wanted_tokens is not None and diagnosis.available_tokens is not None:
            text = f"Wanted {diagnosis.wanted_tokens} tokens, {diagnosis.available_tokens} available. {text}"
    return replace(diagnosis, advice=text)


def gpu_oom(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    """LOWER what takes GPU memory; which setting depends on the phase, the graphs captured and the size asked for."""
    details = dict(diagnosis.details)
    if (free := sizes.free_bytes(first.hit.body)) is not None:
        details["bytes_free"] = free
    if scan.facts.fractions:
        details["mem_fraction_static"] = scan.facts.fractions[-1]
    if diagnosis.phase != "serving" and any(fault.cause is Cause.STARTUP_KV_BUDGET for fault in found):
        return replace(diagnosis, details=details, advice=NO_FRACTION)
    for advise in (_above_the_graphs, _indexer, _module):
        if text := advise(diagnosis, first, scan, details):
            return replace(diagnosis, details=details, advice=text)
    if diagnosis.phase == "weights":
        text = (
            "The weights do not fit this GPU: spread them over more (--tp), quantise further, or free the GPU of other"
            " processes. --mem-fraction-static does not bound weights."
        )
    elif diagnosis.phase == "graph capture":
        text = f"LOWER --mem-fraction-static, or {GRAPH_FLAG}: the graphs' memory lies outside the fraction."
    else:
        text = (
            "LOWER --mem-fraction-static so that more is left for activations, or --chunked-prefill-size; every"
            " request after"
            " that line hangs or fails even where the process stays up."
        )
    return replace(diagnosis, details=details, advice=text)


def _above_the_graphs(diagnosis: Diagnosis, first: Fault, scan: Scan, details: dict[str, object]) -> str:
    """A decode batch above the captured graphs runs eagerly, whose activations take memory nobody kept free."""
    largest = scan.facts.largest_graph
    running = scan.eager[2] if scan.eager and scan.eager[0] < first.hit.line_no else 0
    asked = details.get("asked_concurrency")
    wanted = max(running, asked if isinstance(asked, int) else 0)
    if diagnosis.phase != "serving" or not largest or wanted <= largest:
        return ""
    details.update(largest_graph=largest, graph_sizes=tuple(sorted(scan.facts.graph_sizes)), concurrency=wanted)
    return (
        f"Concurrency {wanted} is above the largest captured CUDA graph, {largest}: decode fell back to eager"
        f" mode and ran out"
        f" of memory. Raise {GRAPH_FLAG} to {wanted}, and lower --mem-fraction-static to make room for the"
        f" larger graphs."
    )


def _indexer(diagnosis: Diagnosis, first: Fault, scan: Scan, details: dict[str, object]) -> str:
    flags = first.traceback.flags if first.traceback else set()
    counts = {name: int(value) for name, value in _COUNT.findall(scan.prefill)}
    pending, new = counts.get("pending-token", 0), counts.get("new-token", 0)
    contexts = [scan.facts.numbers.get("context_len", 0), pending + new, pending]
    for rows in (scan.facts.numbers.get("chunked_prefill_size"), new):
        context = sizes.indexer_context(
            diagnosis.bytes_asked, rows, contexts, scan.facts.deepseek_v4 or "indexer" in flags
        )
        if context and rows:
            details.update(indexer_rows=rows, indexer_context=context)
            return (
                f"The size asked is that of the indexer logits: {rows} prefill rows x {context} tokens of"
                f" context / 4 in fp32,"
                f" which --mem-fraction-static does not account for. Use a smaller --chunked-prefill-size (e.g."
                f" {max(rows // 2, 1)})"
                " first; lowering --mem-fraction-static only moves the limit."
            )
    if "indexer" in flags:
        return (
            "It was asked for in the indexer: use a smaller --chunked-prefill-size first, then lower"
            " --mem-fraction-static."
        )
    return ""


def _module(diagnosis: Diagnosis, first: Fault, scan: Scan, details: dict[str, object]) -> str:
    if "Triton Error" not in first.hit.body or diagnosis.bytes_asked is not None:
        return ""
    uptime = f" after {diagnosis.uptime_s:.0f} s of uptime" if diagnosis.uptime_s is not None else ""
    return (
        f"GPU memory ran out where Triton loads a compiled kernel{uptime}; the size is not known. LOWER"
        f" --mem-fraction-static to"
        " leave room for kernels that are specialised late, and warm up with every shape that is measured."
    )
