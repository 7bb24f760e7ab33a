"""Where the CPU time of a stored trace went, by kind of torch operator: all that a server without a GPU can show.

The trace is the same Chrome JSON. An operator's own time is its span less that of the operators that it calls on its
thread. SGLang marks each step of the model (``step[DECODE bs=16]``); the time looked at goes from the beginning of each decode
step to that of the next one of the same batch, so that prefill and idleness are left out. What no operator takes of it is
Python and the scheduler; it is a category of its own, since a cost there is no operator's.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeGuard

from perfgate.profile import Profile, ProfileError, events, opened

OUTSIDE = "outside of operators"
OTHER = "other operators"

RULES: tuple[tuple[str, str], ...] = (
    ("attention", r"attention|sdpa"),
    ("GEMM", r"(^|::)_?(mkldnn_|onednn_)?(linear|addmm|mm|bmm|baddbmm|matmul|gemm)"),
    ("top-k and sampling", r"top_?k|sort|multinomial|argmax|softmax|cumsum|exponential"),
    ("MoE", r"moe|expert"),
    (
        "copies, views and indexing",
        r"copy|_to|::to$|clone|contiguous|index|gather|scatter|embedding|select|slice|narrow|chunk|split|cat$|empty|fill|zero|"
        r"view|resh|strided|::t$|transpose|permute|movedim|squeeze|flatten|expand|alias|resolve|detach|lift",
    ),
    ("norm and elementwise", r"norm|mul|add|sub|div|silu|gelu|sigmoid|pow|rsqrt|mean|cos|sin|neg"),
)
"""Category and operator-name pattern, ignoring case, first match wins."""

_RULES = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in RULES)
CATEGORIES = (*(name for name, _ in RULES), OTHER, OUTSIDE)

Thread = tuple[str, str]
"""Process and thread, as the trace names them."""

Span = tuple[float, float, str]
"""Start and duration in microseconds, and the operator's name."""


def categorise(operator: str) -> str:
    """Category of an operator's name as the trace has it (``aten::addmm``)."""
    return next((category for category, pattern in _RULES if pattern.search(operator)), OTHER)


def read_cpu_trace(path: str | Path, longest: int = 10) -> Profile:
    """Sum up the operators of a stored trace. Raises ProfileError naming the file and what is wrong."""
    path = Path(path)
    operators: dict[Thread, list[Span]] = defaultdict(list)
    steps: dict[Thread, list[Span]] = defaultdict(list)
    try:
        with opened(path) as file:
            for event in events(file):
                kind = event.get("cat")
                if event.get("ph") != "X" or kind not in ("cpu_op", "user_annotation"):
                    continue
                began, lasted, name = event.get("ts"), event.get("dur"), str(event.get("name"))
                if not _is_number(began) or not _is_number(lasted) or lasted < 0:
                    raise ProfileError(f"event {name!r} has the span {began!r}, {lasted!r}")
                thread = str(event.get("pid")), str(event.get("tid"))
                if kind == "cpu_op":
                    operators[thread].append((began, lasted, name))
                elif name.startswith("step["):
                    steps[thread].append((began, lasted, name))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, RecursionError, ProfileError) as error:
        raise ProfileError(f"{path}: not a whole profiler trace ({error}); take it again with --profile") from None
    windows = {thread: decode_windows(spans) for thread, spans in steps.items()}
    busiest = max(windows, key=lambda t: len(windows[t]), default=None)
    if busiest is None or not windows[busiest]:
        raise ProfileError(f"{path}: no two decode steps of one batch in it; profile with requests running")
    spans = _within(operators[busiest], windows[busiest])
    by_name = own_times(spans)
    by_category = dict.fromkeys(CATEGORIES, 0.0)
    for name, us in by_name.items():
        by_category[categorise(name)] += us
    whole = sum(end - began for began, end in windows[busiest])
    by_category[OUTSIDE] = max(0.0, whole - sum(by_category.values()))
    total = sum(by_category.values())
    if total <= 0:
        raise ProfileError(f"{path}: its decode steps took no time")
    top = tuple((name, categorise(name), float(us)) for name, us in by_name.most_common(longest))
    return Profile(total, by_category, 0.0, len(spans), top, "CPU")


def decode_windows(steps: Iterable[Span]) -> list[tuple[float, float]]:
    """From the beginning of each decode step to that of the next, where that is a decode step of the same batch size."""
    ordered = sorted(steps)
    pairs = ((one, following) for one, following in pairwise(ordered) if one[2] == following[2])
    return [(one[0], following[0]) for one, following in pairs if one[2].startswith("step[DECODE")]


def _within(spans: Iterable[Span], windows: Sequence[tuple[float, float]]) -> list[Span]:
    starts = [began for began, _ in windows]
    found = []
    for span in spans:
        index = bisect_right(starts, span[0]) - 1
        if index >= 0 and span[0] < windows[index][1]:
            found.append(span)
    return found


def own_times(spans: Iterable[Span]) -> Counter[str]:
    """Microseconds by operator on one thread, each without what it calls."""
    found: Counter[str] = Counter()
    stack: list[tuple[float, str]] = []
    # Of two that start together the longer one is the caller.
    for began, lasted, name in sorted(spans, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1][0] <= began:
            stack.pop()
        found[name] += lasted  # type: ignore[assignment]
        if stack:
            end, caller = stack[-1]
            found[caller] -= min(lasted, end - began)  # type: ignore[assignment]
        stack.append((began + lasted, name))
    return found


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
