#!/usr/bin/env python3
"""Does the step time at C=1 depend on the CPU that SGLang's scheduler runs on? A table of CPU against step time.

    tools/gpu/in_home.sh HOME GPU python3 tools/gpu/cpu_map.py OUT [--recipe v4mini-patched] [--rounds 3] [--seconds 120]

Starts the recipe's server, then generates one answer of 256 tokens after the other with the scheduler's threads allowed on one
CPU each time, in seeded order, and between the rounds on all of them. A CPU's column agrees between rounds where the CPU decides,
and a round's rows agree where time does. OUT gets map.txt (also printed), map.json and the server's log.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "kernels")]

import server_steps as steps  # noqa: E402

from perfgate.models import v4mini  # noqa: E402
from perfgate.server import http  # noqa: E402

TOKENS, PORT = 256, 30977


def threads(pid: int) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{pid}/task")]


def scheduler(server: int) -> int:
    """The process of session ``server`` that SGLang calls its scheduler."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            session = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[3])
            if session == server and b"scheduler" in (entry / "cmdline").read_bytes():
                return int(entry.name)
    raise SystemExit("no scheduler process found")


def allow(pid: int, cpus: set[int]) -> None:
    for thread in threads(pid):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cpus)


def answer(chooser: random.Random) -> float:
    """Milliseconds a token of one answer; its prefill is 1 of 256 tokens and taken out by the shorter answer's time."""
    ids = [chooser.randrange(3, 100_000) for _ in range(256)]
    took = []
    for tokens in (8, TOKENS):
        began = time.perf_counter()
        body = {"input_ids": ids, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0.0}}
        http.post_json(f"http://127.0.0.1:{PORT}/generate", body, 60)
        took.append(time.perf_counter() - began)
    return 1e3 * (took[1] - took[0]) / (TOKENS - 8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--recipe", default="v4mini-patched")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    recipe = tomllib.loads((ROOT / "recipes" / f"{asked.recipe}.toml").read_text())
    recipe["server"]["args"]["cuda_graph_max_bs_decode"] = 1
    model = Path.home() / "cpu-map-model"
    model.mkdir(parents=True, exist_ok=True)
    v4mini.generate(model, **recipe["model"]["options"])
    env = steps.environment(recipe, [], asked.out / "counts.jsonl")
    server = steps.Server(recipe, model, PORT, asked.out / "server.log", env)
    try:
        server.wait_ready(time.monotonic() + 200)
        return measure(asked, scheduler(server._process.pid))
    finally:
        server.stop()


def measure(asked: argparse.Namespace, pid: int) -> int:
    chooser, cpus = random.Random(1), sorted(os.sched_getaffinity(0))
    end = time.monotonic() + asked.seconds
    steps_of: dict[str, list[float]] = {str(cpu): [] for cpu in cpus} | {"any": []}
    for _ in range(4):
        answer(chooser)
    for _ in range(asked.rounds):
        for cpu in [*random.Random(2).sample(cpus, len(cpus)), *["any"] * 8]:
            if time.monotonic() > end:
                break
            allow(pid, {cpu} if isinstance(cpu, int) else set(cpus))
            steps_of[str(cpu)].append(round(answer(chooser), 3))
    (asked.out / "map.json").write_text(json.dumps(steps_of) + "\n")
    lines = [f"{cpu:>4}  {'  '.join(f'{one:.2f}' for one in found)}" for cpu, found in steps_of.items() if found]
    flat = [one for found in steps_of.values() for one in found]
    lines.append(
        f"all: {min(flat):.2f} to {max(flat):.2f} ms, median {statistics.median(flat):.2f}; {len(threads(pid))} threads"
    )
    topology = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    lines += [
        line
        for line in topology.splitlines()
        if any(word in line for word in ("Thread", "Core", "Socket", "NUMA", "L3"))
    ]
    text = "\n".join(lines) + "\n"
    (asked.out / "map.txt").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
