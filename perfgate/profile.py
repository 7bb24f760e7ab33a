"""Where the GPU time of a stored trace went, by kind of kernel; no GPU is needed to read one (cpu_trace: CPU time).

A trace is the Chrome JSON (``.json`` or ``.json.gz``) that ``torch.profiler`` writes, which is what SGLang's
``/start_profile`` and ``/stop_profile`` leave. Kernel times are summed, so kernels on two streams at once count twice.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CHUNK = 1 << 20
GPU_EVENTS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
GLUE = "glue"
TENSOR_CORES = "tensor cores"

RULES: tuple[tuple[str, str], ...] = (
    (
        "communication",
        r"nccl|all_?reduce|all_?gather|reduce_?scatter|cross_device_reduce|(one|two)_?shot|deep_?ep|mscclpp",
    ),
    ("hyper-connection", r"sinkhorn|(^|[^a-z])m?hc_|hyper_?conn"),
    (
        "sparse attention",
        r"flash_?mla|sparse_(mla|attn|attention)|splitkv.*mla|mla.*(decode|combine|splitkv)|fwd_sparse",
    ),
    (
        "MoE",
        # DeepGEMM's grouped kernels share their names with the dense ones: its GemmType is 0 there, 4 in a batched GEMM (the
        # attention's output), and else a grouped one, which is the experts' (deep_gemm/common/types.hpp).
        r"moe|expert|group(ed)?_?gemm|(?<![a-z])[mk]_?grouped|GemmType(\)|E)[12356](?!\d)|topk_?(softmax|sigmoid|gating)|grouped_topk|"
        r"_and_mul|swiglu",
    ),
    ("indexer", r"mqa_logits|indexer"),
    ("top-k", r"top_?k|radix_?select"),
    ("GEMM", r"gemm|gemv|cutlass|cublas|nvjet|matmul|splitk|xmma"),
)
"""Category and kernel-name pattern, ignoring case, first match wins; the rest is glue (elementwise, copy, reduce)."""

TENSOR_CORE = (
    r"wgmma|gmma|[hiq]?mma_|_mma|tensorop|xmma|nvjet|s\d+gemm|16816|1688|deep_gemm|fp8_.*gemm|flash_?mla|splitkv_mla|"
    r"sm(90|100|120)_.*(gemm|mqa_logits)|paged_mqa_logits_kernel|sparse_mla_(decode|hopper)|dsv4_hc_prenorm_sum"
)
"""Names of kernels that compute on tensor cores: a trace tells no more of a kernel than its name."""

_RULES = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in RULES)
_TENSOR_CORE = re.compile(TENSOR_CORE, re.IGNORECASE)
CATEGORIES = (*(name for name, _ in RULES), GLUE)


class ProfileError(ValueError):
    """A trace that cannot be read or holds no GPU time."""


@dataclass(frozen=True)
class Shares:
    """Parts of the ``device``'s time, 0 to 1: by category, and in tensor-core kernels (None where there are none)."""

    device: str
    by_category: Mapping[str, float]
    tensor_cores: float | None = None


@dataclass(frozen=True)
class Profile:
    """Time of one trace in microseconds: in all, by category, on tensor cores, and the longest kernels by name.

    ``device`` is GPU (kernels) or CPU (operators, their own time without the operators that they call).
    """

    total_us: float
    by_category: dict[str, float]
    tensor_core_us: float
    kernels: int
    longest: tuple[tuple[str, str, float], ...]
    device: str = "GPU"

    def share(self, category: str) -> float:
        """The category's part of the time, 0 to 1."""
        return self.by_category.get(category, 0.0) / self.total_us

    @property
    def tensor_core_share(self) -> float:
        """Part of the GPU time in tensor-core kernels, 0 to 1."""
        return self.tensor_core_us / self.total_us

    @property
    def shares(self) -> Shares:
        """All parts, as they are stored."""
        parts = {category: self.share(category) for category in self.by_category}
        return Shares(self.device, parts, self.tensor_core_share if self.device == "GPU" else None)


@dataclass(frozen=True)
class ShareChange:
    """A category's share of the GPU time before and now, 0 to 1."""

    category: str
    before: float
    now: float

    @property
    def change(self) -> float:
        """Difference of the shares, in parts of the whole."""
        return self.now - self.before


def categorise(kernel: str) -> tuple[str, bool]:
    """Category of a kernel name, and whether it computes on tensor cores."""
    name = next((category for category, pattern in _RULES if pattern.search(kernel)), GLUE)
    return name, _TENSOR_CORE.search(kernel) is not None


def read_trace(path: str | Path, longest: int = 10) -> Profile:
    """Sum up a stored trace, one event in memory at a time. Raises ProfileError naming the file and what is wrong."""
    path = Path(path)
    by_name: Counter[str] = Counter()
    kernels = 0
    try:
        with opened(path) as file:
            for event in events(file):
                if event.get("ph") == "X" and event.get("cat") in GPU_EVENTS:
                    duration = event.get("dur")
                    if isinstance(duration, bool) or not isinstance(duration, int | float) or duration < 0:
                        raise ProfileError(f"event {event.get('name')!r} has a duration of {duration!r}")
                    by_name[str(event.get("name"))] += duration  # type: ignore[assignment]
                    kernels += 1
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, RecursionError, ProfileError) as error:
        raise ProfileError(f"{path}: not a whole profiler trace ({error}); take it again with --profile") from None
    total = float(sum(by_name.values()))
    if total == 0:
        raise ProfileError(f"{path}: no GPU kernels in it; profile with CUDA activities on and requests running")
    by_category = dict.fromkeys(CATEGORIES, 0.0)
    tensor_core = 0.0
    for name, duration in by_name.items():
        category, on_tensor_cores = categorise(name)
        by_category[category] += duration
        tensor_core += duration if on_tensor_cores else 0.0
    top = tuple((name, categorise(name)[0], float(us)) for name, us in by_name.most_common(longest))
    return Profile(total, by_category, tensor_core, kernels, top)


def compare(now: Shares, before: Shares) -> list[ShareChange]:
    """Shares now against before, the largest change first; on a GPU the last entry is not sorted in: tensor cores.

    Raises ProfileError where one is GPU and the other CPU time.
    """
    if now.device != before.device:
        raise ProfileError(f"{now.device} time now and {before.device} time before cannot be compared")
    names = dict.fromkeys((*before.by_category, *now.by_category))
    changes = [ShareChange(c, before.by_category.get(c, 0.0), now.by_category.get(c, 0.0)) for c in names]
    changes.sort(key=lambda c: -abs(c.change))
    if now.tensor_cores is None or before.tensor_cores is None:
        return changes
    return [*changes, ShareChange(TENSOR_CORES, before.tensor_cores, now.tensor_cores)]


def where_it_went(changes: Sequence[ShareChange], device: str = "GPU", least: float = 0.02) -> str:
    """One sentence for the report: which categories took more of the device's time than before."""
    more = [c for c in changes if c.category != TENSOR_CORES and c.change >= least]
    if not more:
        others = ", or the CPU did" if device == "GPU" else ""
        return f"no category takes more of the {device} time than before: all slowed alike{others}"
    parts = ", ".join(f"{c.category} {c.before:.0%} -> {c.now:.0%}" for c in more)
    return f"more of the {device} time than before: {parts}"


def opened(path: Path) -> IO[str]:
    with path.open("rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8")


def events(file: IO[str]) -> Iterator[dict[str, Any]]:
    """The objects of ``traceEvents`` (or of a bare array), read in chunks: a trace of a minute is over a gigabyte."""
    decoder = json.JSONDecoder()
    buffer = file.read(CHUNK)
    while True:
        start = 0 if buffer.lstrip().startswith("[") else buffer.find('"traceEvents"')
        opening = buffer.find("[", start) if start >= 0 else -1
        if opening >= 0:
            break
        chunk = file.read(CHUNK)
        if not chunk:
            raise ProfileError("no traceEvents in it")
        buffer = (buffer if start >= 0 else buffer[-len('"traceEvents"') :]) + chunk
    position = opening + 1
    while True:
        position = _skip(buffer, position)
        if buffer[position : position + 1] == "]":
            return
        try:
            event, position = decoder.raw_decode(buffer, position)
        except json.JSONDecodeError:
            chunk = file.read(CHUNK)
            if not chunk:
                raise ProfileError("cut off in the middle of its events") from None
            buffer, position = buffer[position:] + chunk, 0
            continue
        if not isinstance(event, dict):
            raise ProfileError(f"an event is a {type(event).__name__}, not an object")
        yield event


def _skip(buffer: str, position: int) -> int:
    while position < len(buffer) and buffer[position] in " \t\r\n,":
        position += 1
    return position
