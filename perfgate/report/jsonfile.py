"""The result file: written whole or not at all, read strictly."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perfgate.result import SCHEMA, RunResult


class ResultError(ValueError):
    """A result that cannot be written or read; the message names the file, the field and what to do."""


def dump(result: RunResult) -> str:
    """The result as strict JSON with a final newline: the same bytes for the same result.

    Raises ResultError where a number is not finite: JSON has no word for it, and null would read as "not measured".
    """
    data = result.model_dump(mode="python")
    bad = _not_finite(data, "")
    if bad:
        place = f"recipe {result.recipe!r}, {bad}"
        raise ResultError(f"{place}: the number is not finite, so this is no measurement; measure again")
    return json.dumps(result.model_dump(mode="json"), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def write(result: RunResult, path: Path) -> None:
    """Write the result so that a reader finds either the old file or the whole new one.

    Raises ResultError (not finite) and OSError (disk full, no permission), leaving ``path`` as it was.
    """
    write_text(path, dump(result))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically: into a new file beside it, flushed to disk, then renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner reads; a report is there to be collected by others.
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path) -> RunResult:
    """Read a result file. Raises ResultError where it is absent, cut in half, of another schema or not a result."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ResultError(f"{path}: cannot be read: {error}; run the measurement again with --report") from None


def parse(text: str, name: str = "result") -> RunResult:
    """Read a result from text; ``name`` is what errors call it. Raises ResultError."""
    try:
        data = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{name}: not whole JSON: {error}; it may be cut off: run the measurement again") from None
    found = data.get("schema_version", SCHEMA) if isinstance(data, dict) else None
    if isinstance(data, dict) and found != SCHEMA:
        raise ResultError(f"{name}: schema_version is {found!r}, this version reads {SCHEMA}; measure again with it")
    try:
        return RunResult.model_validate(data)
    except ValidationError as error:
        lines = (f"{'.'.join(str(p) for p in e['loc']) or '(file)'}: {e['msg']}" for e in error.errors())
        raise ResultError(f"{name}: not a run's result: " + "; ".join(list(lines)[:5])) from None


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _not_finite(value: Any, path: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else (path or "/")
    if isinstance(value, dict):
        return next((b for k, v in value.items() if (b := _not_finite(v, f"{path}/{k}"))), None)
    if isinstance(value, list | tuple):
        return next((b for i, v in enumerate(value) if (b := _not_finite(v, f"{path}/{i}"))), None)
    return None
