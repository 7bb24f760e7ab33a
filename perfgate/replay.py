"""Proof by trace that graph replay runs the patches: a short profile of decode steps, once a server start (edge).

The plug-in's counters see Python, which replay does not go through. So the last thing that a start is asked for, when
everything is measured, is a trace of a few steps: our kernels must be in it, and the ones that they replace not.
"""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfgate import patch_proof
from perfgate.proof import PatchProof
from perfgate.server import Server, http
from perfgate.validity import Problem

STEPS = 12
PROMPT_TOKENS = 256
FIRST_ID = 100
SECONDS = 120.0
TRACES = "*.trace.json.gz"


class TraceMissing(RuntimeError):
    """The server wrote no trace that can be read; the message says what was tried."""


def prove(server: Server, proof: PatchProof, folder: Path, seconds: float = SECONDS) -> list[Problem]:
    """Hold a trace of replayed steps to the patches asked for. A trace that cannot be had proves nothing: a problem."""
    marked = [p for p in proof.required if p in patch_proof.OURS or p in patch_proof.REPLACED]
    if not marked:
        return []
    try:
        seen = take(server.base_url, folder, seconds)
    except (TraceMissing, http.ServerHttpError) as error:
        return [proof.unproved(f"no trace of a replayed step: {error}")]
    return [proof.unproved(f"{w.kind}: {w.message}", w.evidence) for w in patch_proof.check_trace(seen, marked)]


def take(base_url: str, folder: Path, seconds: float, sleep: Callable[[float], None] = time.sleep) -> dict[str, Any]:
    """Profile ``STEPS`` steps of one request through SGLang's endpoints and return the first rank's trace.

    ``folder`` must be on the server's host. Raises TraceMissing and ServerHttpError.
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
    while True:
        if (found := stored(folder)) is not None:
            return found
        if time.monotonic() > deadline:
            raise TraceMissing(f"SGLang's profiler wrote none to {folder} within {seconds:.0f} s")
        sleep(0.5)


def stored(folder: Path) -> dict[str, Any] | None:
    """The trace that ``take`` left in ``folder``, or None."""
    return next((found for path in sorted(folder.rglob(TRACES)) if (found := _read(path)) is not None), None)


def _read(path: Path) -> dict[str, Any] | None:
    """A trace, or None while the server is still writing it."""
    try:
        value = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, ValueError):
        return None
    return value if isinstance(value, dict) else None
