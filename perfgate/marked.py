"""Sections of a page that a command writes: what lies between ``<!-- NAME -->`` and ``<!-- /NAME -->`` (pure)."""

from __future__ import annotations


def section(text: str, name: str, made: str) -> str:
    """``text`` with what lies between the marks of section ``name`` replaced. Raises ValueError where it has none."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, opened, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"no section {name}: add the lines {begin} and {end}")
    return before + begin + made + end + after
