"""Between a server's ready line and its first sample: the patches proved, every kernel compiled by a sweep and bursts (edge)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from perfgate import bursts, jit_files, sweep
from perfgate.proof import PatchProof
from perfgate.recipe import Recipe
from perfgate.server import Server, ServerError, http
from perfgate.server.lifecycle import DEADLINE_CODE, NotProved

SEED = 20_240_604
"""Of the sweep's random prompts: the same ids at every start, so that two starts compile the same kernels."""


def counts_path(log: Path) -> Path:
    """Where the plug-in of the server with this log writes its counters; each process appends its id."""
    return log.parent / "patches" / f"{log.stem}.counts"


def clean_counts(log: Path) -> Path:
    """``counts_path``, without what an earlier run left there."""
    path = counts_path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.glob(f"{path.name}.*"):
        old.unlink()
    return path


def make_ready(
    recipe: Recipe,
    server: Server,
    proof: PatchProof | None,
    windows: list[tuple[float, float]],
    show: sweep.Show,
) -> list[str]:
    """Prove the patches and warm up. Returns notes for the report; ``windows`` gets the warm-up's span.

    Raises NotProved where a required patch did not run, ServerError where the warm-up did not end.
    """
    notes: list[str] = []
    warmed = bool(recipe.warmup.prompt_lengths or recipe.warmup.burst_sizes)
    if warmed:
        began = time.time()
        try:
            notes += _warm(recipe, server, show)
        finally:
            windows.append((began, time.time()))
    if proof is not None and (proof.sizes or warmed):
        problems = proof.settled(log=log_text(server))
        if any(p.invalid for p in problems):
            raise NotProved([p for p in problems if p.invalid], server.log)
    return notes


def _warm(recipe: Recipe, server: Server, show: sweep.Show) -> list[str]:
    """The sweep and the bursts, within one deadline; a line of each."""
    end = time.monotonic() + recipe.limits.start_seconds
    notes = []
    try:
        if recipe.warmup.prompt_lengths:
            notes.append(_sweep(recipe, server, end, show))
        if recipe.warmup.burst_sizes:
            notes.append(_bursts(recipe, server, end, show))
        http.flush_cache(server.base_url)
    except sweep.SweepTimeout as error:
        raise ServerError(f"{error} (limits.start_seconds)", server.log, DEADLINE_CODE) from None
    except http.ServerHttpError as error:
        code = server.exit_code()
        late = DEADLINE_CODE if code is None and "timed out" in str(error) else code
        raise ServerError(f"during the warm-up: {error}", server.log, late) from None
    return notes


def _sweep(recipe: Recipe, server: Server, end: float, show: sweep.Show) -> str:
    def send(ids: Sequence[int], timeout: float) -> None:
        http.generate_one(server.base_url, ids, timeout)

    return sweep.sweep(
        recipe.warmup.prompt_lengths,
        send,
        vocabulary=vocabulary(server.model),
        seed=SEED,
        stall_seconds=recipe.warmup.stall_seconds,
        max_rounds=recipe.warmup.max_rounds,
        deadline_seconds=end - time.monotonic(),
        show=show,
    ).note


def _bursts(recipe: Recipe, server: Server, end: float, show: sweep.Show) -> str:
    def send(prompts: Sequence[Sequence[int]], lengths: Sequence[int], timeout: float) -> None:
        http.generate_burst(server.base_url, prompts, lengths, timeout)

    caches = recipe.watched_caches
    return bursts.bursts(
        recipe.warmup.burst_sizes,
        send,
        (lambda since: len(jit_files.fresh(caches, since))) if caches else None,
        prompt_tokens=recipe.workload.input_len,
        vocabulary=vocabulary(server.model),
        seed=SEED,
        max_rounds=recipe.warmup.max_rounds,
        deadline_seconds=end - time.monotonic(),
        show=show,
    ).note


def vocabulary(model: Path | None) -> int:
    """How many token ids the model knows, from its ``config.json``. Raises ServerError where it does not say."""
    path = (model or Path()) / "config.json"
    try:
        size = json.loads(path.read_text(encoding="utf-8")).get("vocab_size")
    except (OSError, ValueError) as error:
        raise ServerError(f"{path}: the warm-up sweep needs the model's vocab_size: {error}") from None
    if not isinstance(size, int) or size <= sweep.FIRST_ID:
        raise ServerError(f"{path}: vocab_size is {size!r}; the warm-up sweep draws token ids below it")
    return size


def log_text(server: Server) -> str:
    """All that the server has logged so far; nothing for one whose log is elsewhere."""
    return "" if server.log is None else server.log.read_text(errors="replace")
