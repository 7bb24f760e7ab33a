"""``python -m perfgate COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

COMMANDS = {
    "doctor": ("perfgate.doctor", "what this machine can run, and what mends the rest"),
    "report": ("perfgate.report.command", "make a stored result's summary and page anew"),
    "output": ("perfgate.output_command", "hold one recipe's answers to another's, without measuring speed"),
    "compare-context": ("perfgate.context_compare", "is a step as long where another context length is reserved?"),
    "kernels": ("perfgate.kernelbench.cli", "judge, record or show what the kernels' benchmark timed"),
}

USAGE = "\n".join(
    [
        "usage: python -m perfgate COMMAND ...",
        "",
        *(f"  {name:16} {what}" for name, (_, what) in COMMANDS.items()),
        "",
        "python -m perfgate COMMAND --help shows a command's options. What measures is pytest: pytest -m perf",
    ]
)


def main(arguments: list[str]) -> int:
    """Run one command; 2 where there is none of that name."""
    asked = arguments[0] if arguments else ""
    if asked in ("-h", "--help"):
        print(USAGE)
        return 0
    if asked not in COMMANDS:
        print(f"no command {asked!r}" if asked else "which command?", file=sys.stderr)
        print(USAGE, file=sys.stderr)
        return 2
    # Only the one command is imported: the doctor runs where the others' packages are missing.
    run: Callable[[list[str]], int] = import_module(COMMANDS[asked][0]).main
    return run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
