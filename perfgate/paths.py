"""Where the suite keeps what outlives a run: generated models, the ledger of started servers, histories."""

from __future__ import annotations

import os
from pathlib import Path

MEASURE_LOCK = "measure.lock"


def cache_dir() -> Path:
    """``$PERFGATE_CACHE``, else ``$XDG_CACHE_HOME/dsv4-perfgate``, else ``~/.cache/dsv4-perfgate``."""
    if own := os.environ.get("PERFGATE_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dsv4-perfgate"


def models_dir() -> Path:
    return cache_dir() / "models"


def ledger_dir() -> Path:
    """One file for each server that was started and not yet seen to end."""
    return cache_dir() / "servers"


def history_dir() -> Path:
    """This machine's history of runs that recorded no baseline."""
    return cache_dir() / "history"


def measure_lock() -> Path:
    """Held by the run that uses this folder. The host's own lock is in ``host_locks.folder()``."""
    return cache_dir() / MEASURE_LOCK
