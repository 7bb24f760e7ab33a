"""Steps on one SGLang server for a first look: start, warm, bench, stop. Each with its own deadline."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

from perfgate import jit_caches
from perfgate.server import http

READY = "The server is fired up and ready to roll!"
CACHES = tuple(one.folder.removeprefix("~/") for one in jit_caches.KNOWN if one.folder != "~/.cache/sglang")
"""Below HOME. SGLang's own cache also holds what it measured of one machine, and stays there."""


class StepFailed(RuntimeError):
    """A step ran into its deadline or the server died; the message says which."""


def flags(recipe: dict[str, Any]) -> list[str]:
    """A recipe's [server.args] as SGLang's flags."""
    command = []
    for name, value in recipe["server"]["args"].items():
        flag = f"--{name.replace('_', '-')}"
        if value is not False:
            command += [flag] if value is True else [flag, str(value)]
    return command


def environment(recipe: dict[str, Any], path: list[str], counts: Path) -> dict[str, str]:
    """This process's environment with the recipe's on top and the checkout importable."""
    patch = recipe.get("patch", {})
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SGLANG_", "DSV4_"))}
    inherited = [p for p in kept.get("PYTHONPATH", "").split(os.pathsep) if p]
    return {
        **kept,
        **jit_caches.variables(recipe["server"].get("jit_caches", []), kept),
        **recipe["server"].get("env", {}),
        "PYTHONPATH": os.pathsep.join([*path, *inherited]),
        "PYTHONUNBUFFERED": "1",
        "DSV4_PATCHES": ",".join(patch.get("patches", [])),
        "DSV4_FALLBACK": ",".join(patch.get("fallback", [])),
        "DSV4_COUNTS_FILE": str(counts),
    }


class Server:
    """One server in a process session of its own, its log in a file from the first byte."""

    def __init__(self, recipe: dict[str, Any], model: Path, port: int, log: Path, env: dict[str, str]) -> None:
        self.url, self.log = f"http://127.0.0.1:{port}", log
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model)]
        command += ["--host", "127.0.0.1", "--port", str(port), *flags(recipe)]
        self._file = log.open("wb")
        self._process = subprocess.Popen(
            command, env=env, stdout=self._file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def wait_ready(self, deadline: float) -> None:
        while READY not in self.log.read_text(errors="replace"):
            if self._process.poll() is not None:
                raise StepFailed(f"the server ended with {self._process.returncode} before it was ready: {self.log}")
            if time.monotonic() > deadline:
                raise StepFailed(f"the server was not ready in time; see {self.log}")
            time.sleep(0.5)

    def stop(self, seconds: float = 30.0) -> None:
        """End this server's own session, politely first."""
        for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
                if number == signal.SIGKILL:
                    break
        self._file.close()


def warm(
    url: str, lengths: list[int], vocabulary: int, stall_seconds: float, rounds: int, deadline: float
) -> list[float]:
    """One request at a time of exactly so many ids, until none takes over ``stall_seconds``. Returns the worst."""
    chooser, worst = random.Random(1), []
    for _ in range(rounds):
        slowest = 0.0
        for length in lengths:
            if time.monotonic() > deadline:
                raise StepFailed(f"warm-up not done in time; slowest of each round: {worst}, now {slowest:.1f} s")
            ids = [chooser.randrange(3, vocabulary) for _ in range(length)]
            began = time.monotonic()
            http.generate_one(url, ids, 300)
            slowest = max(slowest, time.monotonic() - began)
        worst.append(round(slowest, 2))
        if slowest <= stall_seconds:
            break
    return worst


def bench(
    url: str, model: Path, work: dict[str, Any], concurrency: int, seed: int, out: Path, seconds: float
) -> dict[str, Any]:
    """One run of SGLang's own client in a forked child, which finds its imports already loaded."""
    arguments = [
        "bench",
        "--backend=sglang",
        f"--base-url={url}",
        f"--model={model}",
        f"--tokenizer={model}",
        "--dataset-name=random-ids",
        f"--random-input-len={work['input_len']}",
        f"--random-output-len={work['output_len']}",
        "--random-range-ratio=1.0",
        "--tokenize-prompt",
        f"--num-prompts={max(5, work.get('prompts_per_request', 5)) * concurrency}",
        f"--max-concurrency={concurrency}",
        "--warmup-requests=1",
        "--flush-cache",
        "--output-details",
        "--disable-tqdm",
        f"--seed={seed}",
        f"--output-file={out}",
    ]
    log = out.with_suffix(".client.txt")
    child = multiprocessing.get_context("fork").Process(target=_client, args=(arguments, log))
    child.start()
    child.join(seconds)
    if child.is_alive():
        child.kill()
        child.join()
        raise StepFailed(f"the client at C={concurrency} gave no result within {seconds:.0f} s")
    if child.exitcode or not out.exists():
        raise StepFailed(f"the client at C={concurrency} ended with {child.exitcode}: {log}")
    return json.loads(out.read_text().splitlines()[-1])


def _client(arguments: list[str], log: Path) -> None:
    with log.open("w") as sink, contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        sys.argv = arguments
        from sglang.benchmark.serving import cli_main

        cli_main()


def pack_caches(archive: Path) -> None:
    """Keep the kernels that were compiled, so that the next machine starts with them."""
    with tarfile.open(archive, "w:xz") as tar:
        for name in CACHES:
            if (Path.home() / name).is_dir():
                tar.add(Path.home() / name, arcname=name)


def restore_caches(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(Path.home(), filter="data")
