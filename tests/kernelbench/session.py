"""What one pytest session timed so far, for the table, the stored file and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from perfgate.kernelbench.rows import Run, run_from
from perfgate.kernelbench.shapes import Shape

FACTS = pytest.StashKey[dict[str, Any]]()
"""What goes to the stored file's ``machine_info.kernelbench``: fingerprint, rates, what was not timed and why."""


@dataclass(frozen=True)
class Share:
    """``whole``: the shapes of the quick or the full share; ``own``: those of them that this run measures."""

    whole: tuple[Shape, ...]
    own: tuple[Shape, ...]

    @classmethod
    def of(cls, whole: Sequence[Shape], part: str | None) -> Share:
        """All of it, or part ``K/N``: every N-th shape from the K-th on. Raises UsageError."""
        if not part:
            return cls(tuple(whole), tuple(whole))
        first, _, step = part.partition("/")
        if not (first.isdigit() and step.isdigit() and 1 <= int(first) <= int(step)):
            raise pytest.UsageError(f"--kernelbench-part is K/N, with K from 1 to N, not {part!r}")
        return cls(tuple(whole), tuple(whole[int(first) - 1 :: int(step)]))


SHARE = pytest.StashKey[Share]()
BEGAN = pytest.StashKey[float]()
"""When the session began, by time.monotonic."""


def measured(config: pytest.Config) -> Run | None:
    """This session's run so far, or None where nothing was timed."""
    benchmarks = config._benchmarksession.benchmarks  # type: ignore[attr-defined]
    found = [one.as_dict() for one in benchmarks if one and not one.has_error]
    if not found or "fingerprint" not in config.stash[FACTS]:
        return None
    return run_from({"machine_info": {"kernelbench": config.stash[FACTS]}, "benchmarks": found})
