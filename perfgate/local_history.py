"""This machine's own history of runs, outside version control (edge).

A run without ``--record`` must not touch ``baselines/``, which are reviewed, and would leave a runner's checkout dirty. Its
medians go to ``history/RECIPE/HARDWARE.jsonl`` in the cache folder instead: one line a run, with a digest of
recipe and fingerprint, so that only runs that can be compared are read back. Losing the file loses a history and no floor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from perfgate import paths
from perfgate.baseline.differences import RECIPE
from perfgate.baseline.schema import HISTORY_KEPT, HistoryEntry
from perfgate.recipe import Recipe


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    state: str
    points: dict[int, HistoryEntry]


def history_path(recipe: str, hardware: str) -> Path:
    """Where the runs of a recipe on this hardware are kept."""
    return paths.history_dir() / recipe / f"{hardware}.jsonl"


def state(recipe: Recipe, fingerprint: Mapping[str, Any]) -> str:
    """A digest that is the same for runs that may be compared: the fingerprint, and what the recipe asks of each sample."""
    asked = recipe.model_dump(mode="json", include={"model", "server", "workload", "patch"})
    machine = {key: value for key, value in fingerprint.items() if key != RECIPE}
    text = json.dumps([asked, machine], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(path: Path, wanted: str) -> tuple[dict[int, list[HistoryEntry]], list[str]]:
    """The last runs of the state ``wanted`` by point, oldest first, and notes on what could not be read.

    Never raises: a history that is gone or damaged is no reason not to judge.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [f"this machine's history {path.name} cannot be read ({error.strerror or error})"]
    damaged = 0
    found: dict[int, list[HistoryEntry]] = {}
    for line in lines:
        try:
            row = _Line.model_validate_json(line)
        except ValidationError:
            damaged += 1
            continue
        if row.state == wanted:
            for concurrency, entry in row.points.items():
                found.setdefault(concurrency, []).append(entry)
    notes = [f"this machine's history {path.name} has {damaged} lines that cannot be read"] if damaged else []
    return {c: rows[-HISTORY_KEPT:] for c, rows in found.items()}, notes


def append(path: Path, state: str, entries: Mapping[int, HistoryEntry]) -> list[str]:
    """Add one run of ``state``. Returns notes; where the folder cannot be written, that is a note and no failure of the run."""
    if not entries:
        return []
    line = _Line(state=state, points=dict(entries)).model_dump_json() + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:  # appended in one write: runs of two checkouts do not mix their lines
            file.write(line.encode())
    except OSError as error:
        return [f"this run is not in this machine's history: {path.name} cannot be written ({error.strerror or error})"]
    return []
