"""``python -m perfgate doctor``: what this machine can run, in one screen."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from perfgate.doctor.collect import collect
from perfgate.doctor.diagnosis import ready, screen


def main(arguments: Sequence[str]) -> int:
    """Print the screen. 0 where the recipe named (or any) can run, 1 where not, 2 for wrong arguments."""
    parser = argparse.ArgumentParser("python -m perfgate doctor", description="What this machine can run.")
    parser.add_argument("--recipe", metavar="NAME", help="look at one recipe, and exit 1 where it cannot run")
    parser.add_argument("--strict", action="store_true", help="exit 1 too where the machine is not idle")
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).parents[2], help="the checkout, by default this one"
    )
    given = parser.parse_args(arguments)
    facts = collect(given.root)
    print("\n".join(screen(facts, given.recipe)))
    return 0 if ready(facts, given.recipe, given.strict) else 1
