"""Proof by trace that graph replay runs the patches: a short profile of decode steps, once a server start (edge).

The plug-in's counters see Python, which replay does not go through. So the last thing that a start is asked for, when
everything is measured, is a trace of a few steps of every rank: our kernels must be in the graphs that it replays, and the
ones that they replace nowhere.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfgate import trace_proof
from perfgate.proof import PatchProof
from perfgate.server import Server, http
from perfgate.validity import Problem

STEPS = 12
PROMPT_TOKENS = 256
FIRST_ID = 100
SECONDS = 120.0
TRACES = "*.trace.json.gz"

ByRank = dict[str, dict[str, Any]]
"""One trace a rank, by the name of its file without its endings (``PROFILE-TP-RANK``)."""


class TraceMissing(RuntimeError):
    """A rank wrote no trace that can be read; the message says what was tried."""


def prove(server: Server, proof: PatchProof, folder: Path, seconds: float = SECONDS) -> list[Problem]:
    """Hold every rank's trace of replayed steps to the patches asked for. A trace that cannot be had proves nothing: a
    problem."""
    marked = [p for p in proof.required if p in trace_proof.OURS or p in trace_proof.REPLACED]
    if not marked:
        return []
    try:
        seen = take(server.base_url, folder, seconds, proof.ranks)
    except (TraceMissing, http.ServerHttpError) as error:
        return [proof.unproved(f"no trace of a replayed step: {error}")]
    return [
        proof.unproved(f"{w.kind}: {w.message} ({rank})", w.evidence)
        for rank, trace in seen.items()
        for w in trace_proof.check_trace(trace, marked, proof.a_step)
    ]


def take(
    base_url: str, folder: Path, seconds: float, ranks: int = 1, sleep: Callable[[float], None] = time.sleep
) -> ByRank:
    """Profile ``STEPS`` steps of one request through SGLang's endpoints and return the traces of its ``ranks`` processes.

    ``folder`` must be on the server's host. Raises TraceMissing, where not all came within ``seconds``, and
    ServerHttpError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.rglob(TRACES):
        old.unlink()
    asked = {"output_dir": str(folder.resolve()), "num_steps": STEPS, "activities": ["GPU"]}
    http.post_json(base_url + "/start_profile", asked, seconds)
    sampling = {"max_new_tokens": 2 * STEPS, "temperature": 0.0, "ignore_eos": True}
    ids = list(range(FIRST_ID, FIRST_ID + PROMPT_TOKENS))
    http.post_json(base_url + "/generate", {"input_ids": ids, "sampling_params": sampling}, seconds)
    deadline = time.monotonic() + seconds
    while len(found := stored(folder)) < ranks:
        if time.monotonic() > deadline:
            names = ", ".join(found) or "none"
            raise TraceMissing(
                f"SGLang's profiler wrote {len(found)} of {ranks} ranks' to {folder} within {seconds:.0f} s ({names})"
            )
        sleep(0.5)
    return found


def stored(folder: Path) -> ByRank:
    """The traces in ``folder`` that can be read."""
    return {
        path.name.removesuffix(TRACES[1:]): found
        for path in sorted(folder.rglob(TRACES))
        if (found := _read(path)) is not None
    }


def _read(path: Path) -> dict[str, Any] | None:
    """A trace, or None while the server is still writing it."""
    try:
        value = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError):
        return None
    return value if isinstance(value, dict) else None
