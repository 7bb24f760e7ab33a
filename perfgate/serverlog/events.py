"""Which lines other than batches matter, by the words that SGLang, torch, CUDA, NCCL and uvicorn write.

Spellings of 0.4.1 to 0.5.23. The first pattern that fits names the line, so the narrow ones stand first.
"""

from __future__ import annotations

import re

from perfgate.serverlog.records import EventKind as K

# (kind, words that must all be in the line)
_WORDS: tuple[tuple[K, tuple[str, ...]], ...] = (
    (K.READY, ("The server is fired up and ready to roll",)),
    (K.SHUTDOWN, ("SIGTERM received.",)),
    (K.SHUTDOWN, ("INFO:     Shutting down",)),
    (K.SHUTDOWN, ("Gracefully exiting",)),
    (K.LISTENING, ("Uvicorn running on",)),
    (K.PLUGIN_FAILED, ("Failed to load plugin",)),
    (K.PLUGIN_FAILED, ("Failed to execute general plugin",)),
    (K.PLUGIN_FAILED, ("Failed to apply hooks",)),
    (K.WARMUP_FAILED, ("Initialization failed. warmup error",)),
    (K.GRAPH_FAILED, ("Capture", "graph failed")),
    (K.KV_BUDGET, ("Not enough memory. Please try to increase --mem-fraction-static",)),
    (K.KV_BUDGET, ("leave no GPU memory for the KV cache",)),
    (K.GPU_OOM, ("CUDA out of memory",)),
    (K.GPU_OOM, ("OutOfMemoryError",)),
    (K.GPU_OOM, ("Triton Error [CUDA]: out of memory",)),
    (K.GPU_OOM, ("CUDA error: out of memory",)),
    (K.GPU_OOM, ("HIP out of memory",)),
    (K.REQUEST_ABORTED, ("Out of memory even after retracting",)),
    (K.RETRACTION, ("Retract requests.",)),
    (K.RETRACTION, ("Decode out of memory happened.",)),
    (K.RETRACTION, ("Testing retraction.",)),
    (K.KV_EXHAUSTED, ("Prefill out of memory. Try to lower",)),
    (K.KV_EXHAUSTED, ("Decode out of memory. Try to lower",)),
    (K.KV_EXHAUSTED, ("alloc_req_slots runs out of memory",)),
    (K.REQUEST_ABORTED, ("The request queue is full.",)),
    (K.REQUEST_ABORTED, ("Abort in waiting queue",)),
    (K.REQUEST_ERROR, ("[http_server] Error",)),
    (K.LEAK, ("memory leak detected!",)),
    (K.LEAK, ("pool leak detected!",)),
    (K.NAN, ("NaN happened",)),
    (K.NAN, ("NaN in the logits",)),
    (K.WATCHDOG, ("atchdog timeout (self.watchdog_timeout",)),
    (K.NCCL_TIMEOUT, ("Watchdog caught collective operation timeout",)),
    (K.HEALTH_FAILED, ("Health check failed.",)),
    (K.CHILD_DIED, ("Received sigquit from a child proces",)),
    (K.CHILD_DIED, ("SIGQUIT received.",)),
    (K.CHILD_DIED, ("crashed with exit code",)),
    (K.PORT_IN_USE, ("address already in use",)),
    (K.PORT_IN_USE, ("Address already in use",)),
    (K.PTXAS_ERROR, ("ptxas error",)),
    (K.PTXAS_ERROR, ("ptxas fatal",)),
    (K.CUDA_ERROR, ("no kernel image is available",)),
    (K.CUDA_ERROR, ("illegal memory access",)),
    (K.CUDA_ERROR, ("CUDA error",)),
    (K.CUDA_ERROR, ("CUDA driver error",)),
    (K.EXCEPTION, ("hit an exception:",)),
    (K.TRACEBACK, ("Traceback (most recent call last)",)),
    (K.JIT, ("DeepGEMM JIT",)),
    (K.JIT, ("DeepGEMM warmup",)),
    (K.JIT, ("Loading JIT ops",)),
    (K.JIT, ("Cached JIT module", "rebuilding")),
    (K.JIT, ("JIT compil",)),
    (K.JIT, ("Compiling JIT",)),
    (K.JIT, ("Pre-Compile session",)),
    (K.JIT, ("ninja: ", "build")),
    (K.FLUSH, ("Cache flushed successfully",)),
    (K.FLUSH_REFUSED, ("Cache not flushed",)),
    (K.SERVER_ARGS, ("server_args=ServerArgs(",)),
    (K.CAPACITY, ("max_total_num_tokens=", "context_len=")),
    (K.WEIGHTS_BEGIN, ("Load weight begin.",)),
    (K.WEIGHTS_END, ("Load weight end.",)),
    (K.POOL_READY, ("Memory pool end.",)),
    (K.GRAPH_BEGIN, ("Capture ", "raph begin.")),
    (K.GRAPH_END, ("Capture ", "raph end.")),
    (K.GRAPH_BEGIN, ("Capture cuda graph bs [",)),
    (K.GRAPH_OFF, ("uda graph is disabled",)),
    (K.STARTUP, ("Init torch distributed begin.",)),
    (K.STARTUP, ("Started server process",)),
)

_PROGRESS = re.compile(r"Capturing batches \(bs=(\d+)")
_ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b")

# Kinds whose un-prefixed lines below are one multi-line message.
MULTI_LINE = frozenset(
    (K.EXCEPTION, K.TRACEBACK, K.PLUGIN_FAILED, K.WARMUP_FAILED, K.GRAPH_FAILED, K.REQUEST_ERROR, K.CUDA_ERROR)
)


ALL_WORDS = tuple(dict.fromkeys(words[0] for _, words in _WORDS))
_BYALL_WORDS = {first: [(kind, words) for kind, words in _WORDS if words[0] == first] for first in ALL_WORDS}


def words_in(text: str) -> tuple[str, ...]:
    """Those of the words by which lines are told that a stretch of the log holds at all; ``classify`` needs no others for
    its lines. Searching a megabyte for a word costs less than searching ten thousand lines for it, and most hold none."""
    return tuple(filter(text.__contains__, ALL_WORDS))


def classify(line: str, words: tuple[str, ...] = ALL_WORDS) -> K | None:
    """The kind of a line by its words, or None. ``words`` are those to look for, in their order (``words_in``)."""
    # filter runs the searches without a step of the interpreter each: most lines match none of them.
    for first in filter(line.__contains__, words):
        for kind, words in _BYALL_WORDS[first]:
            if len(words) == 1 or words[1] in line:
                return kind
    return None


def captured_size(segment: str) -> int | None:
    """The batch size that a capture progress bar shows."""
    found = _PROGRESS.search(segment) if "Capturing" in segment else None
    return int(found[1]) if found and len(found[1]) < 7 else None


def is_error_line(line: str) -> bool:
    """Whether an un-prefixed line is the last of a Python traceback (``AssertionError: ...``)."""
    return _ERROR_LINE.match(line) is not None
