"""What one pytest session timed so far, for the table, the stored file and the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate.kernelbench.rows import Run, run_from

FACTS = pytest.StashKey[dict[str, Any]]()
"""What goes to the stored file's ``machine_info.kernelbench``: fingerprint, rates, what was not timed and why."""


def measured(config: pytest.Config) -> Run | None:
    """This session's run so far, or None where nothing was timed."""
    benchmarks = config._benchmarksession.benchmarks  # type: ignore[attr-defined]
    found = [one.as_dict() for one in benchmarks if one and not one.has_error]
    if not found or "fingerprint" not in config.stash[FACTS]:
        return None
    return run_from({"machine_info": {"kernelbench": config.stash[FACTS]}, "benchmarks": found})
