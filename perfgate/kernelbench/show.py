"""``python -m perfgate.kernelbench.show RUN.json [--lines N]``: a stored run as text, on any machine."""

from __future__ import annotations

import argparse
import sys

from perfgate.kernelbench.rows import RunError, load
from perfgate.kernelbench.table import render


def main(arguments: list[str]) -> int:
    """Print the run; 1 where it cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m perfgate.kernelbench.show", description=__doc__)
    parser.add_argument("run", help="what --benchmark-json wrote")
    parser.add_argument("--lines", type=int, default=0, help="at most so many lines (0: all)")
    options = parser.parse_args(arguments)
    try:
        print(render(load(options.run), options.lines or None), end="")
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
