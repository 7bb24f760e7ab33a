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
_COUNT = re.compile(r"#(new-seq|new-token|pending-token): (\d{1,12})")

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
    indexer = _indexer(diagnosis, first, scan, details)
    graphs = _above_the_graphs(diagnosis, first, scan, details)
    if graphs:
        captured = [line for number, line in scan.capture_lines if number < first.position][:1]
        evidence = tuple(dict.fromkeys([*captured, *diagnosis.evidence]))
        diagnosis = replace(diagnosis, evidence=evidence)
    if text := " ".join(filter(None, (indexer, graphs))) or _module(diagnosis, first):
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
    """A concurrency above the captured graphs: start-up set nothing aside for it, in decode or in prefill."""
    largest = scan.facts.largest_graph
    running = scan.eager[2] if scan.eager and scan.eager[0] < first.hit.line_no else 0
    asked = details.get("asked_concurrency")
    wanted = max(running, scan.facts.on_one_rank(asked) if isinstance(asked, int) else 0)
    if diagnosis.phase != "serving" or not largest or wanted <= largest:
        return ""
    details.update(largest_graph=largest, graph_sizes=tuple(sorted(scan.facts.graph_sizes)), concurrency=wanted)
    flags = first.traceback.flags if first.traceback else set()
    chunks = ""
    if "prefill" in flags:
        what = "memory ran out in a prefill step, and the start had kept none free for steps of that size"
        chunks = " A smaller --chunked-prefill-size bounds those steps too."
    elif "decode" in flags or running > largest:
        what = "decode fell back to eager mode and ran out of memory"
    else:
        what = "the start had kept no memory free for its eager decode steps and its larger prefill steps"
    return (
        f"Concurrency {wanted} is above the largest captured CUDA graph, {largest}: {what}. Raise {GRAPH_FLAG} to"
        f" {wanted}, so that its decode is captured and the memory for it taken at the start, and lower"
        f" --mem-fraction-static to make room for the larger graphs and the larger prefill steps.{chunks}"
    )


def _indexer(diagnosis: Diagnosis, first: Fault, scan: Scan, details: dict[str, object]) -> str:
    """Memory that ran out in the indexer of a prefill step: told by the traceback, or else by a size nothing else has.

    The size alone is little: at 64K tokens of context a row of logits takes what a token's four residual streams take
    in fp32. A traceback that leads into the model and not into the indexer rules it out.
    """
    flags = first.traceback.flags if first.traceback else set()
    framed = "indexer" in flags
    if diagnosis.phase in ("weights", "graph capture") or "decode" in flags or ("layers" in flags and not framed):
        return ""
    chunk, limit = (scan.facts.numbers.get(name, 0) for name in ("chunked_prefill_size", "context_len"))
    step = {name: int(value) for name, value in _COUNT.findall(first.hit.prefill)}
    new, pending = step.get("new-token", 0), step.get("pending-token", 0)
    rows = chunk or new
    # One prompt that fills a chunk and waits for more: only of such a one is it known that it is long, and how long.
    long = pending > 0 and new >= rows and step.get("new-seq") == 1
    lengths = [pending + new, pending] if long else []
    if context := sizes.indexer_context(diagnosis.bytes_asked, rows, lengths, limit if framed else 0):
        details.update(indexer_rows=rows, indexer_context=context)
        return (
            f"The size asked is that of the indexer logits: {rows} prefill rows x {context} tokens of context / 4 in fp32,"
            f" which --mem-fraction-static does not account for. Use a smaller --chunked-prefill-size (e.g."
            f" {max(rows // 2, 1)}) first; lowering --mem-fraction-static alone only moves the limit."
        )
    if framed:
        return (
            "It was asked for in the indexer: use a smaller --chunked-prefill-size first, then lower"
            " --mem-fraction-static."
        )
    return ""


def _module(diagnosis: Diagnosis, first: Fault) -> str:
    if "Triton Error" not in first.hit.body or diagnosis.bytes_asked is not None:
        return ""
    uptime = f" after {diagnosis.uptime_s:.0f} s of uptime" if diagnosis.uptime_s is not None else ""
    return (
        f"GPU memory ran out where Triton loads a compiled kernel{uptime}; the size is not known. LOWER"
        f" --mem-fraction-static to"
        " leave room for kernels that are specialised late, and warm up with every shape that is measured."
    )
