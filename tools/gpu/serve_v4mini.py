#!/usr/bin/env python3
"""A first look at the small DeepSeek-V4 on a GPU: serve recipes one after the other and print a table.

    python3 tools/gpu/serve_v4mini.py --out DIR [--recipes v4mini-stock v4mini-patched ...] [--concurrency 1 16 64]
        [--samples 1] [--budget 560] [--caches jit.txz] [--trace] [--output-check STEPS]

Needs SGLang on PYTHONPATH and no network; the checkout needs no installation. Under DIR come each server's log,
summary.jsonl (the client's result lines and the plug-in's counters) and jit-caches.txz; the rest goes to --work. The
output check holds every later recipe to the first one, which should be the stock server. Exits 1 where a step failed or
a patch is not proved.

Several of these may run on one GPU at once with --shared, each with a --port of its own: they share the caches (each
begins its sweep elsewhere, --rotate) and measure one at a time (--lock). Figures taken so are a first look, no more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "kernels")]

import server_steps as steps  # noqa: E402
from filelock import FileLock  # noqa: E402
from make_entry_point import make_entry_point  # noqa: E402

from perfgate import capacity, gpu, output_client, replay  # noqa: E402
from perfgate.models import v4mini  # noqa: E402
from perfgate.output_check import differences, judge  # noqa: E402
from perfgate.patch_proof import (  # noqa: E402
    ProofProblem,
    calls_a_step,
    check_counts,
    check_log,
    read_counts,
)
from perfgate.server import http  # noqa: E402
from perfgate.trace_proof import check_trace, kernel_names  # noqa: E402


def main() -> int:
    options = parse()
    for folder in (options.out, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.budget
    if options.caches:
        steps.restore_caches(options.caches)
    site = options.work / "site"
    make_entry_point(site, ROOT / "pyproject.toml")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    began = time.monotonic()
    import sglang.benchmark.serving  # noqa: F401  # once, before any fork

    print(f"client imports: {time.monotonic() - began:.0f} s", flush=True)
    nvml = gpu.open_nvml()
    print("\n".join(map(str, gpu.describe(nvml))), flush=True)
    if not options.shared:
        gpu.refuse_foreign(gpu.compute_processes(nvml), set())
    free = [nvml.nvmlDeviceGetMemoryInfo(device).free // gpu.MIB for device in gpu.handles(nvml)]
    failures, state = 0, State()
    print(f"{'recipe':<26}{'C':>4}{'tok/s':>10}{'TPOT ms':>9}{'TTFT ms':>9}{'max TTFT':>9}{'done':>6}", flush=True)
    for index, name in enumerate(options.recipes):
        try:
            serve(name, index, options, site, end, state)
        except (
            steps.StepFailed,
            output_client.OutputCheckError,
            replay.TraceMissing,
            http.ServerHttpError,
            OSError,
        ) as error:
            failures += 1
            print(f"{name}: FAILED: {error}", flush=True)
            log = options.out / f"{name}.server.log"
            if log.exists():
                print("\n".join(log.read_text(errors="replace").splitlines()[-12:]), flush=True)
        except Unproved as error:
            failures += 1
            print(f"{name}: INVALID: {error}", flush=True)
        steps.pack_caches(options.out / "jit-caches.txz")
        if not options.shared:
            gpu.wait_for_memory(nvml, [mib - 1024 for mib in free], timeout=60)
    return 1 if failures else 0


class Unproved(Exception):
    """A patch, or the output, is not what the recipe asks for."""


@dataclass
class State:
    """What later recipes are held to: the first server's steps, and the same once more."""

    reference: tuple | None = None


def serve(name, index, options, site, end, state):
    recipe = tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text())
    layers = recipe["model"]["options"]["layers"]
    model = options.work / f"model-{layers}"
    if not (model / "config.json").exists():
        v4mini.generate(model, layers)
    counts = options.work / f"{name}.counts.json"
    env = steps.environment(recipe, [str(site), str(ROOT), str(ROOT / "kernels")], counts)
    began = time.monotonic()
    server = steps.Server(recipe, model, options.port + index, options.out / f"{name}.server.log", env)
    try:
        server.wait_ready(min(end, began + recipe["limits"]["start_seconds"]))
        print(f"{name}: ready after {time.monotonic() - began:.0f} s", flush=True)
        warmup, began = recipe["warmup"], time.monotonic()
        stall, rounds = warmup["stall_seconds"], warmup["max_rounds"]
        lengths = warmup["prompt_lengths"]
        at = int(options.rotate * len(lengths))
        worst = steps.warm(server.url, lengths[at:] + lengths[:at], v4mini.VOCABULARY, stall, rounds, end)
        print(f"{name}: warmed in {time.monotonic() - began:.0f} s, slowest step a round {worst} s", flush=True)
        with FileLock(options.lock) if options.lock else contextlib.nullcontext():
            windows = measure(name, recipe, server, model, options, end)
        problems = prove(name, recipe, server, counts, windows, options, end)
        if options.output_check:
            problems += [ProofProblem("LOG", "", t) for t in compare(name, server, options, state, end)]
    finally:
        server.stop()
    if problems:
        raise Unproved("; ".join(p.message for p in problems[:6]))


def measure(name, recipe, server, model, options, end):
    windows = []
    for concurrency in options.concurrency:
        for sample in range(-1, options.samples):  # the first warms the point's own shapes and is thrown away
            result = options.work / f"{name}.c{concurrency}.{sample}.jsonl"
            began = time.time()
            seconds = min(recipe["limits"]["sample_seconds"], end - time.monotonic())
            row = steps.bench(
                server.url, model, recipe["workload"], concurrency, 1000 * concurrency + sample + 1, result, seconds
            )
            if sample < 0:
                continue
            windows.append((began, time.time()))
            keep(options, {"recipe": name, "started_at": began} | {k: v for k, v in row.items() if k != "server_info"})
            print(
                f"{name:<26}{concurrency:>4}{row['output_throughput']:>10.1f}{row['median_tpot_ms']:>9.2f}"
                f"{row['median_ttft_ms']:>9.1f}{1000 * max(row['ttfts']):>9.0f}{row['completed']:>6}",
                flush=True,
            )
    return windows


def keep(options, row):
    with (options.out / "summary.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def prove(name, recipe, server, counts, windows, options, end) -> list[ProofProblem]:
    patch = recipe.get("patch", {})
    required = [*patch.get("patches", []), *(f"fallback_{p}" for p in patch.get("fallback", []))]
    info, log = http.server_info(server.url), server.log.read_text(errors="replace")
    sizes = list(capacity.graph_sizes(info, log))
    time.sleep(1)  # the plug-in writes its counters at most this late
    ratios = v4mini.compress_ratios(recipe["model"]["options"]["layers"])
    ranks = recipe["server"]["args"].get("tp_size", 1)
    problems = check_log(log)
    found = read_counts(counts)
    keep(options, {"recipe": name, "counts": [c.model_dump(by_alias=True) for c in found]})
    problems += check_counts(found, required, sizes, calls_a_step(ratios), ranks, windows)
    if options.trace:
        seconds = min(90.0, end - time.monotonic())
        for rank, seen in replay.take(server.url, options.work / f"{name}-trace", seconds, ranks).items():
            keep(options, {"recipe": name, "rank": rank, "kernels": sorted(kernel_names(seen))})
            problems += check_trace(seen, required, calls_a_step(ratios))
    proved = ", ".join(required) or "no patch asked for"
    print(f"{name}: graphs {sizes}; {proved}: {'proved' if not problems else 'NOT proved'}", flush=True)
    return problems


def compare(name, server, options, state, end) -> list[str]:
    chooser = random.Random(7)
    prompts = [[chooser.randrange(3, v4mini.VOCABULARY) for _ in range(length)] for length in (5, 64, 129, 512, 2300)]
    seconds = max(1.0, end - time.monotonic())
    if state.reference is None:
        first = output_client.free_run(server.url, prompts, options.output_check, timeout=seconds)
        again = output_client.forced_run(server.url, prompts, first, together=True, timeout=seconds)
        same = judge(first, [again], first)
        alone = output_client.forced_run(server.url, prompts, first, together=False, timeout=seconds)
        noise = judge(first, [alone], first)
        anew = output_client.forced_run(server.url, prompts, first, timeout=seconds, every=8)
        print(f"{name}: same batch again: noise {same.noise:.4g} (deterministic: {same.deterministic})", flush=True)
        print(f"{name}: one at a time: noise {noise.noise:.4g}", flush=True)
        state.reference = first, [again, alone, anew]
        return []
    first, yardsticks = state.reference
    forced = output_client.forced_run(server.url, prompts, first, timeout=seconds)
    verdict = judge(first, yardsticks, forced, options.floor)
    middle = statistics.median(d.amount for d in differences(first, forced))
    print(
        f"{name}: output: largest difference {verdict.largest:.4g} (median {middle:.4g}), bound {verdict.limit:.4g}, "
        f"{verdict.changed_tokens} of {verdict.steps} tokens differ: {'same' if verdict.ok else 'DIFFERENT'}",
        flush=True,
    )
    return list(verdict.problems[:4])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "dsv4-first-look")
    parser.add_argument("--recipes", nargs="+", default=["v4mini-stock", "v4mini-patched", "v4mini-fallback"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--budget", type=float, default=560.0, help="seconds for everything")
    parser.add_argument("--caches", type=Path, help="jit-caches.txz of an earlier run, put back first")
    parser.add_argument("--trace", action="store_true", help="prove the replay by a short profiler trace")
    parser.add_argument("--output-check", type=int, default=0, metavar="STEPS")
    parser.add_argument("--floor", type=float, default=0.0, help="least bound of the output check, in nats")
    parser.add_argument("--shared", action="store_true", help="other servers may be on this GPU")
    parser.add_argument("--port", type=int, default=30000, help="of the first server; later ones count up")
    parser.add_argument("--rotate", type=float, default=0.0, help="share of the sweep's lengths to begin after")
    parser.add_argument("--lock", help="a file to hold while measuring")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
