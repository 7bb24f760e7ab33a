"""The table of fault messages: which text, in a server's log, shows which cause.

Texts are those of SGLang 0.4.1 to 0.5.23, torch, Triton, ptxas, c10d and uvicorn. A rule names what a line says and
nothing more; which of several faults came first, and whether it was one, is decided in ``decide``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from perfgate.diagnosis.cause import Cause


class Strength(IntEnum):
    """How much a message proves: a root names the fault, a death says that something ended, a symptom only warns."""

    SYMPTOM = 1
    DEATH = 2
    ROOT = 3


@dataclass(frozen=True)
class Rule:
    """One message. ``name`` is the key that advice and details use; ``pattern`` is searched for in the line's text."""

    name: str
    cause: Cause
    strength: Strength
    pattern: re.Pattern[str]


def _rule(name: str, cause: Cause, pattern: str, strength: Strength = Strength.ROOT) -> Rule:
    return Rule(name, cause, strength, re.compile(pattern))


RULES: tuple[Rule, ...] = (
    # -- memory, the specific before the general --
    _rule(
        "kv_budget",
        Cause.STARTUP_KV_BUDGET,
        r"Not enough memory\. Please try to increase --mem-fraction-static"
        r"|leave no GPU memory for the KV cache"
        r"|leaves no room for the full KV pool"
        r"|Not enough GPU memory for hybrid"
        r"|state cache is too small to serve",
    ),
    _rule(
        "kv_pool",
        Cause.KV_POOL_EXHAUSTED,
        r"(?:Prefill|Decode) out of memory\. |alloc_req_slots runs out of memory"
        r"|Out of memory even after retracting",
    ),
    _rule(
        "retraction",
        Cause.KV_POOL_EXHAUSTED,
        r"KV cache pool is full\. Retract|Decode out of memory happened|The request queue is full|Abort in"
        r" waiting queue",
        Strength.SYMPTOM,
    ),
    _rule(
        "host_memory",
        Cause.SERVER_DIED,
        r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|std::bad_alloc|\[Errno 12\] Cannot allocate memory"
        r"|Out of memory: Killed process|oom-kill|^MemoryError\b",
    ),
    _rule(
        "shared_memory",
        Cause.JIT_COMPILE_FAILED,
        r"uses too much shared data|out of resources?: shared memory",
    ),
    _rule(
        "gpu_oom",
        Cause.GPU_OOM,
        r"OutOfMemoryError\b|(?:CUDA|HIP|XPU) out of memory|Triton Error \[\w+\]: out of memory"
        r"|CUDA error(?: \([^()]*\))?: out of memory|CUDA driver error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure \d* ?'out of memory'",
    ),
    # -- kernels --
    _rule(
        "no_kernel_image",
        Cause.NO_KERNEL_IMAGE,
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU",
    ),
    _rule(
        "illegal_access",
        Cause.ILLEGAL_ACCESS,
        r"an illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress"
        r"|CUDA.{0,60}illegal address|\berror:? \(?700\b|misaligned address"
        r"|device-side assert triggered|unspecified launch failure|an illegal instruction was encountered",
    ),
    _rule(
        "jit",
        Cause.JIT_COMPILE_FAILED,
        r"ptxas (?:error|fatal)|nvcc (?:error|fatal)|ninja: build stopped|Error building extension"
        r"|NVRTC(?:_ERROR_COMPILATION| compilation failed)|PassManager::run failed|`?ptxas`? failed with error code"
        r"|PTXASError|triton\.compiler\.errors\.\w*Error|CompilationError: at \d|NVCC compilation failed"
        r"|returned non-zero exit status \d+.{0,400}nvcc|nvcc.{0,400}returned non-zero exit status",
    ),
    _rule("capture", Cause.GRAPH_CAPTURE_FAILED, r"Capture \w+ graph failed:|Fail when using backend: .{0,200} runner"),
    # -- hangs --
    _rule("nccl", Cause.NCCL_TIMEOUT, r"Watchdog caught collective operation timeout"),
    _rule("watchdog", Cause.HANG_WATCHDOG, r"(?:\w+ )?[Ww]atchdog timeout \(self\.watchdog_timeout="),
    _rule("health", Cause.HANG_NO_PROGRESS, r"Health check failed\.", Strength.SYMPTOM),
    # -- start --
    _rule(
        "model",
        Cause.UNSUPPORTED_MODEL,
        r"Model architectures? .{0,300}(?:not supported|failed to be inspected)"
        r"|does not recognize this architecture|Unrecognized model in |^KeyError: ['\"]deepseek_v\w+['\"]"
        r"|Unknown quantization method",
    ),
    _rule(
        "weights",
        Cause.WEIGHT_LOAD_FAILED,
        r"SafetensorError|Cannot find any model weights|No such file or directory: .{0,500}\.(?:safetensors|bin|pt)\b"
        r"|Error while deserializing header",
    ),
    _rule(
        "port",
        Cause.PORT_IN_USE,
        r"\[Errno (?:98|48)\]|[Aa]ddress already in use|EADDRINUSE"
        r"|[Pp]ort \d+ is (?:already in use|not available|occupied)",
    ),
    # -- deaths: something ended, the reason stands elsewhere or nowhere --
    _rule("leak", Cause.SERVER_DIED, r"memory leak detected!|pool leak detected!", Strength.DEATH),
    _rule("exception", Cause.SERVER_DIED, r"\w+ hit an exception: ?", Strength.DEATH),
    _rule("warmup", Cause.SERVER_DIED, r"Initialization failed\. warmup error", Strength.DEATH),
    _rule("subprocess", Cause.SERVER_DIED, r"Subprocess \S+ \(pid=\d+\) crashed with exit code", Strength.DEATH),
    _rule(
        "native",
        Cause.SERVER_DIED,
        r"Fatal Python error|Segmentation fault|terminate called after throwing|core dumped|^Killed$|^Bus error",
        Strength.DEATH,
    ),
    _rule(
        "sigquit",
        Cause.SERVER_DIED,
        r"Received sigquit from a child proces|SIGQUIT received\.",
        Strength.DEATH,
    ),
    # -- a server that runs without its patch --
    _rule(
        "plugin",
        Cause.UNKNOWN,
        r"Failed to load plugin (?P<load>\S+)|Failed to execute general plugin: (?P<execute>\S+)"
        r"|Failed to apply hooks to (?P<hooks>\S+)",
        Strength.SYMPTOM,
    ),
)

_LITERALS: dict[str, tuple[str, ...]] = {
    "kv_budget": (
        "try to increase --mem-fraction",
        "leave no GPU memory",
        "leaves no room for",
        "for hybrid",
        "too small to",
    ),
    "kv_pool": ("out of memory. ", "runs out of memory", "even after retracting"),
    "retraction": ("Retract", "memory happened", "request queue is full", "Abort in waiting"),
    "host_memory": ("DefaultCPUAllocator", "bad_alloc", "Errno 12]", "Killed process", "oom-kill", "MemoryError"),
    "shared_memory": ("shared data", "shared memory"),
    "gpu_oom": ("OutOfMemory", "out of memory", "OUT_OF_MEMORY", "MemoryAllocation", "ALLOC_FAILED"),
    "no_kernel_image": ("kernel image", "NoKernelImage", "NO_BINARY_FOR"),
    "illegal_access": (
        *("illegal memory", "ILLEGAL_ADDRESS", "IllegalAddress", "illegal address", "700", "misaligned address"),
        *("device-side assert", "unspecified launch", "illegal instruction"),
    ),
    "jit": (
        *("ptxas", "nvcc", "ninja: build", "building extension", "NVRTC", "PassManager", "PTXAS", "triton.compiler"),
        *("CompilationError", "NVCC"),
    ),
    "capture": ("graph failed:", "Fail when using backend"),
    "nccl": ("Watchdog caught",),
    "watchdog": ("atchdog timeout",),
    "health": ("Health check failed",),
    "model": ("Model architecture", "recognize this", "Unrecognized model", "deepseek_v", "Unknown quantization"),
    "weights": ("SafetensorError", "any model weights", "No such file", "deserializing header"),
    "port": ("Errno 98]", "Errno 48]", "ddress already in use", "EADDRINUSE", "ort "),
    "leak": ("leak detected",),
    "exception": ("hit an exception",),
    "warmup": ("Initialization failed",),
    "subprocess": ("crashed with exit",),
    "native": ("Fatal Python", "Segmentation", "terminate called", "core dumped", "Killed", "Bus error"),
    "sigquit": ("sigquit from", "SIGQUIT received"),
    "plugin": ("Failed to load plugin", "Failed to execute general", "Failed to apply hooks"),
}
"""Plain text of which a line must hold one before its rule's pattern is tried: most of a long log is passed over so."""

_FACTS = (
    *(
        "server_args=",
        "max_total_num_tokens",
        "Load weight",
        "Memory pool end",
        "fired up",
        "Capture ",
        "Capturing batches",
    ),
    *(
        "SIGTERM",
        "Shutting down",
        "Try to allocate",
        "Available ",
        "evictable",
        "plugin",
        "JIT",
    ),
    *("Traceback (most recent", "watchdog_timeout", '" 5'),
)


def _any_of(words: list[str]) -> re.Pattern[str]:
    """One pattern for many plain texts, grouped by first character so that few are tried at any place."""
    groups: dict[str, list[str]] = {}
    for word in sorted(set(words)):
        groups.setdefault(word[0], []).append(re.escape(word[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in groups.items()))


_WORDS = tuple(dict.fromkeys([*_FACTS, *(text for rule in RULES for text in _LITERALS[rule.name])]))
FEW = 12
"""Plain searches that cost less than one of the pattern for all of them."""


class Look:
    """Which lines of one stretch of a log are worth a look, and which rules may fit them: told by what the stretch holds.

    Without a stretch all of them are looked for. Searching a megabyte for a text costs far less than searching ten
    thousand lines for it, and most stretches hold few.
    """

    def __init__(self, chunk: str | None = None) -> None:
        held = set(_WORDS if chunk is None else filter(chunk.__contains__, _WORDS))
        self._words = tuple(word for word in _WORDS if word in held)
        self._rules = tuple(
            (rule, tuple(text for text in _LITERALS[rule.name] if text in held))
            for rule in RULES
            if not held.isdisjoint(_LITERALS[rule.name])
        )

    def worth(self, line: str) -> bool:
        """Whether a rule or a fact could be read from the line."""
        if len(self._words) > FEW:
            return WORTH_A_LOOK.search(line) is not None
        return next(filter(line.__contains__, self._words), None) is not None

    def first(self, body: str) -> tuple[Rule, int] | None:
        """The first rule that fits, and where in the body its text starts."""
        for rule, literals in self._rules:
            if next(filter(body.__contains__, literals), None) and (found := rule.pattern.search(body)):
                return rule, found.start()
        return None


WORTH_A_LOOK = _any_of(list(_WORDS))
"""Found in every line that a rule or a fact could be read from."""

LOOK = Look()

ADVICE_TEXT = re.compile(
    r"^\s*(?:\d+\. |Possible (?:solutions|suggestions)|Open an issue on GitHub|\(?Not recommended)|if it is an"
    r" OOM problem"
)
"""Lines of SGLang's own suggestions: they name OOM and memory flags whatever the fault was."""

ECHO_TEXT = re.compile(r"^(?:server_args=|Receive: |Finish: |\s*\"\"\")")
"""Lines that repeat what a user sent or asked: data, whatever they say (``--log-requests``, server arguments)."""

HANDLED = re.compile(r"(?i)fall(?:ing|s)? back|fallback|skipp?ing|will retry|retrying|\bignor(?:e|ed|ing)\b")
"""A message that says in the same line that it was dealt with."""
