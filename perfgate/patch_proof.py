"""Did every patch that a recipe asks for run where it should? From the plug-in's counters and SGLang's log (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

DECODE_PATCHES = frozenset({"sparse_mla", "indexer", "topk", "hc_prenorm", "fallback_sparse_mla", "fallback_indexer"})
"""Patches that every decode step goes through; the rest (``prewarm``) run once at start."""

DECODES_TOLD = frozenset({"sparse_mla", "fallback_sparse_mla"})
"""Those of whose calls the plug-in knows which are a decode's. The others are called in prefill too, outside any graph."""

PLUGIN_FAILURES = ("Failed to load plugin", "Failed to execute general plugin", "Failed to apply hooks")
"""Log lines of SGLang (srt/plugins) after which it comes up unpatched. Any of them is fatal to a patched recipe."""


class CountsError(ValueError):
    """A counters file that is not one of the plug-in's; the message names the file."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Calls(_Row):
    """Calls of one patch: while capturing, by query rows; eager, by second since the epoch; ``prefill``, of batches that
    decode nothing, where the plug-in can tell them: no part of the others."""

    capturing: dict[int, int] = {}
    eager_by_second: dict[int, int] = {}
    eager_before: int = 0
    prefill: int = 0

    def eager_inside(self, start: float, end: float) -> int:
        """Eager calls in whole seconds that lie inside the window."""
        return sum(n for second, n in self.eager_by_second.items() if start <= second and second + 1 <= end)

    @property
    def total(self) -> int:
        """All but those that are known to be no decode's."""
        return sum(self.capturing.values()) + sum(self.eager_by_second.values()) + self.eager_before


class Counts(_Row):
    """One process's counters file (``dsv4_kernels.sglang_plugin.counts``)."""

    schema_version: Literal[1] = Field(alias="schema")
    pid: int
    sglang: str
    arch: str
    patches: dict[str, list[str]]
    calls: dict[str, Calls] = {}


Kind = Literal[
    "NOT_HOOKED", "NOT_CAPTURED", "WRONG_COUNT", "EAGER_IN_WINDOW", "NOT_IN_TRACE", "REPLACED_IN_TRACE", "LOG"
]


@dataclass(frozen=True)
class ProofProblem:
    """Why a patch is not proved. Each makes the run INVALID."""

    kind: Literal[
        "NOT_HOOKED", "NOT_CAPTURED", "WRONG_COUNT", "EAGER_IN_WINDOW", "NOT_IN_TRACE", "REPLACED_IN_TRACE", "LOG"
    ]
    patch: str
    message: str
    evidence: tuple[str, ...] = ()


def read_counts(path: Path) -> list[Counts]:
    """The counters of every process that wrote ``path`` with its id appended. Raises CountsError."""
    found = []
    for file in sorted(path.parent.glob(f"{path.name}.*")):
        try:
            found.append(Counts.model_validate(json.loads(file.read_text(encoding="utf-8"))))
        except (OSError, json.JSONDecodeError, ValidationError) as error:
            raise CountsError(f"{file}: not a counters file of the plug-in: {str(error)[:300]}") from None
    return found


def calls_a_step(compress_ratios: Sequence[int]) -> dict[str, int]:
    """How often one decode step goes through each patch, from the model's ``compress_ratios`` (one a layer).

    Attention once a layer, the indexer and its top-k in layers that compress 4:1, the hyper-connection's pre-norm
    before attention and before the experts.
    """
    layers, indexed = len(compress_ratios), sum(ratio == 4 for ratio in compress_ratios)
    return {
        "sparse_mla": layers,
        "fallback_sparse_mla": layers,
        "indexer": indexed,
        "fallback_indexer": indexed,
        "topk": indexed,
        "hc_prenorm": 2 * layers,
    }


def check_counts(
    found: Iterable[Counts],
    required: Iterable[str],
    captured_sizes: Iterable[int],
    a_step: Mapping[str, int],
    ranks: int = 1,
    windows: Iterable[tuple[float, float]] = (),
    graphs: bool = True,
) -> list[ProofProblem]:
    """Hold the counters to what a recipe asks for.

    ``required`` are full patch names; ``captured_sizes`` the batch sizes of the decode graphs (``/server_info``; empty
    without graphs, or where it does not say); ``a_step`` the result of calls_a_step; ``ranks`` how many schedulers run the
    model; ``windows`` the measured spans in seconds since the epoch, inside which a decode outside a graph is a fault.
    With ``graphs`` decode is to run from graphs, and calls prove nothing while it is not known which were captured.
    """
    processes = [c for c in found if c.patches]
    sizes, spans, problems = sorted(captured_sizes), list(windows), []
    for patch in required:
        hooked = [c for c in processes if patch in c.patches]
        if len(hooked) < ranks:
            who = ", ".join(str(c.pid) for c in hooked) or "none"
            text = f"{patch} was applied in {len(hooked)} of {ranks} scheduler processes ({who})"
            problems.append(ProofProblem("NOT_HOOKED", patch, text))
            continue
        for process in hooked:
            calls = process.calls.get(patch, Calls())
            problems += _one_process(patch, process, calls, sizes, a_step.get(patch, 0), spans, graphs)
    return problems


def _one_process(
    patch: str,
    process: Counts,
    calls: Calls,
    sizes: list[int],
    expected: int,
    windows: list[tuple[float, float]],
    graphs: bool,
) -> list[ProofProblem]:
    where = f"{patch} (pid {process.pid}, {process.arch}, sglang {process.sglang})"
    if patch in DECODE_PATCHES and not sizes and graphs:
        text = f"{where}: which graphs decode runs from is not known; a recipe of a server without any needs a graphs_reason"
        return [ProofProblem("NOT_CAPTURED", patch, text)]
    if patch not in DECODE_PATCHES or not sizes:
        return _eager(patch, where, calls, expected if patch in DECODE_PATCHES else 1)
    problems = []
    missing = [size for size in sizes if not calls.capturing.get(size)]
    if missing:
        text = f"{where} was not called while the graphs of batch sizes {missing} were captured"
        problems.append(ProofProblem("NOT_CAPTURED", patch, text))
    for size in sizes:
        count = calls.capturing.get(size, 0)
        if count and (count < expected or expected == 0 or count % expected):
            text = f"{where} was called {count} times capturing batch size {size}, expected {expected} or a multiple"
            problems.append(ProofProblem("WRONG_COUNT", patch, text))
    if patch in DECODES_TOLD:
        for start, end in windows:
            eager = calls.eager_inside(start, end)
            if eager:
                text = f"{where}: {eager} decode calls outside a graph inside the measured window"
                problems.append(ProofProblem("EAGER_IN_WINDOW", patch, text))
    return problems


def _eager(patch: str, where: str, calls: Calls, expected: int) -> list[ProofProblem]:
    if not calls.total:
        return [ProofProblem("NOT_CAPTURED", patch, f"{where} was never called")]
    if calls.total < expected:
        text = f"{where} was called {calls.total} times, and a step takes {expected}"
        return [ProofProblem("WRONG_COUNT", patch, text)]
    return []


def check_log(log: str) -> list[ProofProblem]:
    """SGLang's own lines about a plug-in that failed."""
    lines = [line for line in log.splitlines() if any(mark in line for mark in PLUGIN_FAILURES)]
    text = "SGLang logged a plug-in's failure and came up without it"
    return [ProofProblem("LOG", "", text, tuple(lines[:10]))] if lines else []
