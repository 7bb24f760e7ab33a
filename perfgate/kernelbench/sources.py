"""Which code a kernel's time is of: what the source files of each kernel come to (edge: it reads them)."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

PACKAGE = "dsv4_kernels"
STEMS = {"decode": "sparse_mla", "indexer": "indexer", "topk": "topk", "hc": "hyper_connection"}
"""What the names of a kernel's own files begin with; all other files of the package belong to every kernel."""


def digests(folder: Path | None = None) -> dict[str, str]:
    """By kernel, 16 hexadecimal digits over its source files and those that it shares; empty where there are none.

    ``folder``: the package's, by default where it would be imported from. Oracles and plug-in are not part of a time.
    """
    if folder is None:
        found = importlib.util.find_spec(PACKAGE)
        if found is None or not found.submodule_search_locations:
            return {}
        folder = Path(next(iter(found.submodule_search_locations)))
    files = {path.stem: path.read_bytes() for path in folder.glob("*.py")}
    shared = {name for name in files if not name.startswith(tuple(STEMS.values()))}
    return {
        kernel: _digest({name: code for name, code in files.items() if name.startswith(stem) or name in shared})
        for kernel, stem in STEMS.items()
        if any(name.startswith(stem) for name in files)
    }


def _digest(files: dict[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    return whole.hexdigest()[:16]
