"""Runs SGLang's real serving benchmark client many times, paying for its imports once.

``python client.py`` imports ``sglang.benchmark.serving``, then takes one JSON request a line on stdin (argv, log,
seconds) and answers with one line, the exit code: a forked child runs the client's own ``cli_main``; at its deadline it
is killed and the answer is 124.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

DEADLINE = 124


def run_one(argv: list[str], log: str, seconds: float) -> int:
    """Fork, run the client with these arguments, and return its exit code."""
    from sglang.benchmark.serving import cli_main

    child = os.fork()
    if child == 0:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        sys.argv = ["serving", *argv]
        code = 0
        try:
            cli_main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
        except BaseException:
            import traceback

            traceback.print_exc()
            code = 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return DEADLINE


def main() -> None:
    """Answer requests until stdin closes."""
    import sglang.benchmark.serving  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(run_one(asked["argv"], asked["log"], asked["seconds"]), file=answers, flush=True)


if __name__ == "__main__":
    main()
