"""The preloaded parent of all client runs: imports SGLang's benchmark client once, then forks a child a sample.

Run as ``python -m perfgate.workload.preload``. It reads one JSON object a line from standard input
(``{"argv": [...], "output": PATH}``), forks a child that runs the client with those arguments and its output in that file,
and answers with one JSON object a line: ``{"pid": N}`` at once and ``{"exit": code, "cpu_seconds": s}`` when the child
ended. Importing takes some seconds and is the same every time; the child has its own exit code and can be killed.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
import traceback
from types import ModuleType
from typing import NoReturn, TextIO

CLIENT_MODULES = ("sglang.benchmark.serving", "sglang.bench_serving")
"""Newest name first; the second is its name up to 0.5.6."""


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the imports print must not mix with the answers
    try:
        module = _client_module()
    except ImportError as error:
        _answer(answers, {"error": f"SGLang's serving benchmark client cannot be imported: {error}"})
        return 1
    _answer(answers, {"ready": module.__name__})
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(module, order["argv"], order["output"])
        _answer(answers, {"pid": pid})
        _, status, usage = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        _answer(answers, {"exit": code, "cpu_seconds": usage.ru_utime + usage.ru_stime})
    return 0


def _client_module() -> ModuleType:
    first: ImportError | None = None
    for name in CLIENT_MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            first = first or error
    raise first or ImportError("no client")


def _child(module: ModuleType, argv: list[str], output: str) -> NoReturn:
    sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what was said before a kill is what tells how far it had come
            stream.reconfigure(line_buffering=True)
    code = 1
    try:
        sys.argv = ["bench_serving", *argv]
        main_function = getattr(module, "cli_main", None)
        if main_function is None:
            raise RuntimeError(f"{module} has no cli_main; this SGLang version's client cannot be driven")
        main_function()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _answer(sink: TextIO, value: dict[str, object]) -> None:
    sink.write(json.dumps(value) + "\n")


if __name__ == "__main__":
    sys.exit(main())
