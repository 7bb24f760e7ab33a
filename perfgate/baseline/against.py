"""The option that runs a baseline's own state beside this one (pure)."""

from __future__ import annotations

DIRTY = "-dirty"
"""What ``fingerprint.git_commit`` appends where tracked files differed from the commit."""


def against(commit: str | None) -> tuple[str, str]:
    """The option to type for the state recorded as ``commit``, and what has to be said of it, or nothing."""
    if not commit:
        return "--against RECIPE", ""
    clean = commit.removesuffix(DIRTY)
    note = "the baseline was recorded with changes that are in no commit, which that one lacks"
    return f"--against-commit {clean}", note if clean != commit else ""
