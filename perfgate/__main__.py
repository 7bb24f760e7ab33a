"""``python -m perfgate COMMAND``."""

from __future__ import annotations

import sys


def main(arguments: list[str]) -> int:
    """Run one command; 2 where there is none of that name."""
    if arguments[:1] == ["doctor"]:
        from perfgate import doctor

        return doctor.main(arguments[1:])
    if arguments[:1] == ["kernels"]:
        from perfgate.kernelbench import cli

        return cli.main(arguments[1:])
    if arguments[:1] == ["report"]:
        from perfgate.report import command

        return command.main(arguments[1:])
    if arguments[:1] == ["output"]:
        from perfgate import output_command

        return output_command.main(arguments[1:])
    if arguments[:1] == ["compare-context"]:
        from perfgate import context_compare

        return context_compare.main(arguments[1:])
    print("usage: python -m perfgate doctor [--recipe NAME] [--strict]", file=sys.stderr)
    print("       python -m perfgate kernels judge|record|show|report RUN.json... [--reason TEXT]", file=sys.stderr)
    print("       python -m perfgate report RESULT.json --out DIR", file=sys.stderr)
    print("       python -m perfgate output --recipe NEW --against OLD [--report DIR]", file=sys.stderr)
    print("       python -m perfgate compare-context RESULT.json RESULT.json", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
