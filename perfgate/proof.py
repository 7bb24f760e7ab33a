"""Whether one server start runs the patches that its recipe asks for: from its counters, its model and its log (edge)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate import capacity, patch_proof, validity
from perfgate.recipe import Recipe
from perfgate.validity.problem import problem

SETTLE_SECONDS = 3.0
"""The plug-in writes its counters a moment after a call (dsv4_kernels.sglang_plugin.counts.FLUSH_SECONDS)."""

Windows = Sequence[tuple[float, float]]


def asked(recipe: Recipe) -> tuple[str, ...]:
    """Full names of the patches that must be seen to run."""
    fallback = [name if name.startswith("fallback_") else f"fallback_{name}" for name in recipe.patch.fallback]
    return (*recipe.patch.patches, *fallback)


def compress_ratios(config: Mapping[str, Any]) -> tuple[int, ...]:
    """One KV compression a layer from a model's ``config.json``; what is listed beyond its layers (MTP) is left out."""
    ratios = config.get("compress_ratios")
    layers = config.get("num_hidden_layers")
    found = [int(r) for r in ratios] if isinstance(ratios, list) else []
    return tuple(found[:layers] if isinstance(layers, int) else found)


@dataclass(frozen=True)
class PatchProof:
    """The proof of one start. ``counts`` is the counters' path, to which each process appends its id; ``sizes`` are the
    batch sizes of its decode graphs, empty where it does not say, and ``graphs`` whether it is to have any."""

    required: tuple[str, ...]
    fatal: bool
    counts: Path
    sizes: tuple[int, ...]
    a_step: Mapping[str, int]
    ranks: int
    graphs: bool = True

    @classmethod
    def of(cls, recipe: Recipe, counts: Path, model: Path | None, info: Mapping[str, Any], log: str) -> PatchProof:
        """What has to hold of a server with this ``/server_info`` and this log of its start."""
        config: dict[str, Any] = {}
        if model is not None and (model / "config.json").is_file():
            config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return cls(
            required=asked(recipe),
            fatal=recipe.patch.required,
            counts=counts,
            sizes=capacity.graph_sizes(info, log),
            a_step=patch_proof.calls_a_step(compress_ratios(config)),
            ranks=capacity.ranks(info),
            graphs=recipe.graphs_reason is None,
        )

    def check(self, windows: Windows = (), log: str = "") -> list[validity.Problem]:
        """What is not proved. ``windows`` are measured spans in seconds since the epoch. Invalid where required."""
        if not self.required:
            return []
        try:
            found = patch_proof.read_counts(self.counts)
        except patch_proof.CountsError as error:
            return [self.unproved(str(error), ())]
        wrong = patch_proof.check_counts(
            found, self.required, self.sizes, self.a_step, self.ranks, windows, self.graphs
        )
        return [self.unproved(f"{w.kind}: {w.message}", w.evidence) for w in [*wrong, *patch_proof.check_log(log)]]

    def settled(
        self,
        windows: Windows = (),
        log: str = "",
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> list[validity.Problem]:
        """``check`` once the counters had time to be written: whatever is still missing then is missing."""
        deadline = clock() + SETTLE_SECONDS
        while (found := self.check(windows, log)) and clock() < deadline:
            sleep(0.2)
        return found

    def unproved(self, message: str, evidence: Sequence[str] = ()) -> validity.Problem:
        """A reason why the patches are not proved: invalid where the recipe requires them."""
        return problem(validity.ProblemKind.PATCH_NOT_PROVED, message, evidence or (message,), invalid=self.fatal)
