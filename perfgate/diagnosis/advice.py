"""What to do about each cause: the setting to change and the direction, from the message that was seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from perfgate.diagnosis import memory
from perfgate.diagnosis.cause import Cause, Diagnosis
from perfgate.diagnosis.faults import Fault
from perfgate.diagnosis.health import heartbeat_gap_s
from perfgate.diagnosis.scan import Hit, Scan
from perfgate.diagnosis.story import earlier_exception

_WATCHDOG = re.compile(r"watchdog_timeout=(\d+(?:\.\d+)?)")
_POOL = re.compile(r"(?<!\w)available(?:_size)?=(\d{1,15}).{0,80}?evictable(?:_size)?=(\d{1,15})")
_EXIT = re.compile(r"exit code (-?\d{1,6})")


def add(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    """Return the diagnosis with its advice, and with the details that the advice rests on."""
    return _BY_CAUSE.get(diagnosis.cause, _died)(diagnosis, first, found, scan)


def _capture(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    reason = diagnosis.reason
    if "graph failed:" in reason:
        reason = reason.split("graph failed:", 1)[1].strip()
        if not reason:
            earlier = earlier_exception(first, scan)
            reason = earlier[2].strip() if earlier else "unknown"
    flags = first.traceback.flags if first.traceback else set()
    frame = re.sub(r"\s+", " ", first.traceback.frame).strip() if first.traceback else ""
    place = f" (last frame: {frame})" if frame else ""
    text = f"The capture of CUDA graphs died of: {reason}{place}. This is not lack of memory: fix that error."
    if "moe" in flags:
        backend = scan.facts.moe_runner_backend or "auto"
        text += (
            f" It came from the MoE layer: --moe-runner-backend {backend} does not take this model's expert"
            f" layout on this"
            " GPU. Choose a backend that does, or match the experts' format (SGLANG_DSV4_FP4_EXPERTS) to the weights."
        )
    elif reason == "unknown":
        text = (
            "The capture of CUDA graphs failed and its message is empty. Start once with --disable-cuda-graph:"
            " if the same"
            " forward pass fails there, its traceback names the error."
        )
    return replace(diagnosis, reason=reason, advice=text)


def _jit(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    if diagnosis.bytes_asked and diagnosis.bytes_limit:
        text = (
            f"A kernel asks {diagnosis.bytes_asked} bytes of shared memory a block where this GPU gives"
            f" {diagnosis.bytes_limit}: choose a smaller tile or fewer stages, or the backend made for this"
            f" architecture."
            " This is not GPU memory; --mem-fraction-static does not help."
        )
    else:
        text = (
            "A kernel did not compile. Read the compiler's first line; check that the toolkit (nvcc, ptxas,"
            " triton) knows this"
            " GPU's architecture, then clear that kernel's cache and start again."
        )
    return replace(diagnosis, advice=text)


def _image(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    return replace(
        diagnosis,
        advice="A library was built without code for this GPU's architecture: install the build that has it (check its"
        " CUDA arch list against the GPU's compute capability) or choose another backend.",
    )


def _illegal(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    errors = tuple(f.hit.text for f in found if f.cause is Cause.ILLEGAL_ACCESS)[:4]
    prompt = re.search(r"#new-token: (\d{1,9})", first.hit.prefill)
    details = {**diagnosis.details, "cuda_errors": errors, "frame_reliable": False}
    after = ""
    if prompt:
        details["last_prefill_tokens"] = int(prompt.group(1))
        after = (
            f" The last prefill step before it had {prompt.group(1)} new tokens; warm up with the real prompt length."
        )
    return replace(
        diagnosis,
        details=details,
        advice="A kernel read or wrote out of bounds. The frame in the traceback is unreliable (asynchronous):"
        " it is where the"
        " error surfaced, not the kernel that made it. Start from the first CUDA error in the evidence and rerun that"
        f" request under compute-sanitizer.{after}",
    )


def _nccl(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    return replace(
        diagnosis,
        advice=f"A collective did not end in time, first reported by"
        f" {diagnosis.first_rank or 'an unnamed rank'}, and no rank"
        " showed an earlier fault. Look for the rank that never entered it (stack dump, GPU state, links:"
        " nvidia-smi topo,"
        " NCCL_DEBUG=INFO).",
    )


def _watchdog(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    details = dict(diagnosis.details)
    timeout = _WATCHDOG.search(first.hit.body)
    if timeout:
        details["watchdog_timeout_s"] = float(timeout.group(1))
    text = (
        f"The server made no step for {timeout.group(1) if timeout else 'its watchdog timeout in'} seconds."
        " Read the stack dump above the watchdog line for the call that it hangs in."
    )
    for number, line in scan.pool_lines:
        pool = _POOL.search(line)
        if pool and number < first.hit.line_no:
            available, evictable = int(pool.group(1)), int(pool.group(2))
            details.update(pool_available=available, pool_evictable=evictable)
            if evictable > available:
                text += (
                    f" The pool had {available} tokens free and {evictable} evictable: it waited for an"
                    f" eviction that never"
                    " came, a deadlock and not a lack of capacity; another batch size or pool size would only hide it."
                )
                break
    return replace(diagnosis, details=details, advice=text)


def _no_progress(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    gap = heartbeat_gap_s(first.hit.body)
    recovered = scan.last_batch_line > first.hit.line_no
    shown = f"{gap} s" if gap is not None else "too long"
    then = "then batches came again" if recovered else "and no batch line came after it"
    return replace(
        diagnosis,
        fatal=not recovered,
        details={**diagnosis.details, "gap_s": gap, "recovered": recovered},
        advice=f"The server had not answered for {shown}, {then}. Keep the server until its watchdog writes its"
        f" stack dump"
        " (--watchdog-timeout), then read where it hangs.",
    )


def _weights(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    return replace(
        diagnosis,
        advice="The weights could not be loaded. This is the machine's storage or the checkpoint, no verdict on"
        " speed: check"
        " that every shard of the model is there and whole, then run again.",
    )


def _model(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    return replace(
        diagnosis,
        advice="The installed SGLang or transformers does not know this model: install a version that does, or correct"
        " architectures, model_type and quantization_config in the model's config.json.",
    )


def _port(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    return replace(
        diagnosis,
        advice="Another process holds the port; what answers there is not this server. Stop it or choose a free"
        " --port, and"
        " count no sample that was taken through this one.",
    )


def _died(diagnosis: Diagnosis, first: Fault, found: list[Fault], scan: Scan) -> Diagnosis:
    text = f"The server died of: {diagnosis.reason}. Points before that line stand, later ones were not run."
    if first.rule == "host_memory":
        text = (
            "The host ran out of memory, not the GPU: give the server's container more, or lower what it keeps"
            " on the host"
            " (--max-total-tokens on a CPU engine, hierarchical cache, parallel weight loading)."
        )
    elif first.rule == "leak":
        text = (
            "SGLang's own idle check found KV tokens that nobody holds and stopped the server. Points before"
            " that line stand but"
            " are to be flagged; later ones were not run, which is no drop to zero. Report the leak with this log."
        )
    return replace(diagnosis, advice=text)


def unpatched(hits: list[Hit]) -> str:
    """Advice for plug-in lines: SGLang logs the exception and comes up without the patch."""
    names = [
        next(iter(filter(None, match.groups())), "") for hit in hits if (match := hit.rule.pattern.search(hit.body))
    ]
    shown = ", ".join(dict.fromkeys(name for name in names if name)) or "a plug-in"
    return (
        f"The server runs unpatched: SGLang logged that {shown} failed and went on without it. Fix the"
        f" plug-in's exception"
        " (its traceback follows that line); nothing measured on this start says anything about the patch."
    )


def exit_meaning(code: int) -> str:
    """Say what a process's exit code tells."""
    signal = -code if code < 0 else code - 128 if 128 < code < 192 else 0
    known = {
        1: "SIGHUP",
        2: "SIGINT: somebody pressed Ctrl-C",
        6: "SIGABRT: native code gave up, often a CUDA or NCCL error",
        9: "SIGKILL: the kernel's out-of-memory killer, a container limit, or somebody",
        11: "SIGSEGV: a fault in native code",
        15: "SIGTERM: asked to stop",
    }
    return f"killed by signal {signal} ({known.get(signal, 'see signal(7)')})" if signal else f"exit code {code}"


def crashed_child(line: str) -> str:
    """Say what a "Subprocess … crashed with exit code N" line tells."""
    match = _EXIT.search(line)
    return exit_meaning(int(match.group(1))) if match else ""


_Adviser = Callable[[Diagnosis, Fault, list[Fault], Scan], Diagnosis]
_BY_CAUSE: dict[Cause, _Adviser] = {
    Cause.GPU_OOM: memory.gpu_oom,
    Cause.STARTUP_KV_BUDGET: memory.kv_budget,
    Cause.KV_POOL_EXHAUSTED: memory.kv_pool,
    Cause.GRAPH_CAPTURE_FAILED: _capture,
    Cause.JIT_COMPILE_FAILED: _jit,
    Cause.NO_KERNEL_IMAGE: _image,
    Cause.ILLEGAL_ACCESS: _illegal,
    Cause.NCCL_TIMEOUT: _nccl,
    Cause.HANG_WATCHDOG: _watchdog,
    Cause.HANG_NO_PROGRESS: _no_progress,
    Cause.WEIGHT_LOAD_FAILED: _weights,
    Cause.UNSUPPORTED_MODEL: _model,
    Cause.PORT_IN_USE: _port,
}
