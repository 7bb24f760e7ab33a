"""``python -m perfgate doctor``: what this machine can run, in one screen."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfgate.doctor.collect import collect
from perfgate.doctor.diagnosis import ready, screen


def main(arguments: Sequence[str]) -> int:
    """Print the screen. 0 where the recipe named (or any) can run, 1 where not, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        "python -m perfgate doctor",
        description="What this machine can run, and what mends the rest. Exits 1 where no recipe can run.",
    )
    parser.add_argument("--recipe", metavar="NAME", help="look at this recipe alone")
    parser.add_argument("--strict", action="store_true", help="exit 1 too where the machine is not idle")
    root = Path(__file__).parents[2]
    parser.add_argument("--root", type=Path, metavar="DIR", default=root, help="the checkout (default: this one)")
    given = parser.parse_args(arguments)
    facts = collect(given.root)
    print("\n".join(screen(facts, given.recipe)))
    return 0 if ready(facts, given.recipe, given.strict) else 1
