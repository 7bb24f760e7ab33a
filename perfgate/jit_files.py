"""Kernels compiled while a sample ran: files that appeared in the recipe's compile caches since it began (edge)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from perfgate import jit_caches
from perfgate.validity import Problem, ProblemKind
from perfgate.validity.problem import problem

SUFFIXES = (".cubin", ".so", ".json", ".o", ".cu", ".ptx", ".py", ".mlir")
"""What Triton, DeepGEMM, TileLang, tvm-ffi, FlashInfer, Inductor (a module for each graph) and CuTe's DSL write for each kernel.
Locks and indices that are touched at load are not."""

MAX_DEPTH = 8
"""SGLang's own cache is the deepest: a graph's hash, its rank and its name, and Triton's below."""
CLOCK_SECONDS = 0.02
"""A file's time is taken from the kernel's coarse clock, which is up to a tick behind the one that timed the sample."""


def fresh(folders: Iterable[str], since: float, until: float = float("inf")) -> list[str]:
    """Files of SUFFIXES written in ``[since, until]`` (seconds since the epoch), each relative to its cache, sorted."""
    found = []
    for name in folders:
        root = Path(jit_caches.expanded(name, os.environ))
        for path, written in _files(str(root), MAX_DEPTH):
            if since - CLOCK_SECONDS <= written <= until:
                found.append(f"{root.name}/{os.path.relpath(path, root)}")
    return sorted(found)


def check(folders: Iterable[str], since: float, until: float = float("inf")) -> list[Problem]:
    """One invalid problem naming the files, or none."""
    files = fresh(folders, since, until)
    text = f"{len(files)} compiled files appeared in the kernel caches during the sample"
    return [problem(ProblemKind.JIT, text, files)] if files else []


def _files(folder: str, depth: int) -> Iterator[tuple[str, float]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return  # a cache that does not exist yet, or a folder that its compiler has just moved into place
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth > 1:
                    yield from _files(entry.path, depth - 1)
            elif entry.name.endswith(SUFFIXES):
                yield entry.path, entry.stat(follow_symlinks=False).st_mtime
        except OSError:
            continue  # gone since it was listed
