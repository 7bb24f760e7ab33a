#!/usr/bin/env python3
"""How good is the A/B judgement on a real server? Runs A/B after A/B between servers that stay up, and counts.

    python tests/evaluation/real/command.py --out DIR [--recipe FILE] [--slow step:share=0.10 request:request_ms=0.25]
        [--blocks 10] [--pairs 12] [--max-pairs N] [--blocks-a-start 2] [--points 1,16] [--budget SECONDS] [--extra-aa 0] [--set key=value]
        [--model key=value] [--lock FILE] [--together]
    python tests/evaluation/real/command.py --out DIR --page SECTION      puts the counts into docs/evaluation.md

A block is one A/B run of each kind on the same rounds: two servers of the same state (A/A), and each slowed one against the
first of them. With --max-pairs a run goes on, like the gate's, until its answer is clear. Every few blocks all servers are started anew. Runs are appended to DIR/runs.jsonl, every sample to
DIR/samples.jsonl; a later call with the same DIR goes on counting. Exits 1 after an alarm, or where a slow-down was not found.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import random
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(HERE), str(ROOT), str(ROOT / "kernels")]

from arms import plugin_site, slowed, with_server  # noqa: E402
from counts import put_into_page, read, summary, wrong  # noqa: E402
from runs import Bench, EvaluationError, Rounds, judge_runs  # noqa: E402

from perfgate import paths, recipe  # noqa: E402
from perfgate.gpu_guard import GpuGuard  # noqa: E402
from perfgate.host import LocalHost  # noqa: E402
from perfgate.options import Options  # noqa: E402
from perfgate.recipe import Recipe  # noqa: E402
from perfgate.sampler import Sampler  # noqa: E402
from perfgate.server import ServerError  # noqa: E402
from perfgate.server.shared import SharedServer  # noqa: E402
from perfgate.workload.client import Client  # noqa: E402

FIRST, SECOND = "A", "A again"


def main() -> int:
    asked = parse()
    signal.signal(signal.SIGTERM, interrupted)  # leave through the blocks that stop the servers
    if asked.page:
        put_into_page(ROOT / "docs" / "evaluation.md", asked.page, asked.out)
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    chosen = prepared(asked)
    slow = dict(text.split(":", 1) for text in asked.slow)
    site = plugin_site(asked.out.absolute() / "plugin")
    states = {FIRST: slowed(chosen, None, site), SECOND: slowed(chosen, None, site)}
    states |= {name: slowed(chosen, how, site) for name, how in slow.items()}
    end = time.monotonic() + asked.budget
    # A/A blocks alone where only those are still wanted.
    plan = [list(states)] * asked.blocks + [[FIRST, SECOND]] * asked.extra_aa
    done = 0
    while done < len(plan) and time.monotonic() < end:
        batch = plan[done : done + asked.blocks_a_start]
        names = sorted({name for names in batch for name in names}, key=list(states).index)
        try:
            with serving(asked, {name: states[name] for name in names}) as bench:
                for names in batch:
                    if time.monotonic() > end:
                        break
                    block(asked, bench, names, chosen, slow)
                    done += 1
        except (EvaluationError, ServerError) as error:
            say(f"given up: {error}")
            return 1
    rows = read(asked.out)
    if not rows:
        say("no run was counted: the time was up before the first block")
        return 1
    print(summary(rows), flush=True)
    return int(bool(wrong(rows)))


def interrupted(signum: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would leave servers behind
    raise KeyboardInterrupt


def prepared(asked: argparse.Namespace) -> Recipe:
    """The recipe with what the command line changes of it."""
    chosen = recipe.load(asked.recipe)
    points = [p for p in chosen.points if not asked.points or p.concurrency in asked.points]
    asked_for = {"min_seconds": asked.seconds, "prompts_per_request": asked.prompts}
    work = chosen.workload.model_copy(update={name: value for name, value in asked_for.items() if value})
    args = dict(pair.split("=", 1) for pair in asked.set)
    changed = {name: json.loads(value) for name, value in args.items()}
    bounds = chosen.bounds.model_copy(update={"between_start_rel_sd": asked.spread} if asked.spread is not None else {})
    options = {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in asked.model)}
    model = chosen.model.model_copy(update={"options": {**chosen.model.options, **options}})
    # Another model's figures are not the recipe's, and must not be counted under its name.
    name = "-".join([chosen.name, *(f"{key}-{value}" for key, value in options.items())])
    chosen = chosen.model_copy(
        update={"name": name, "model": model, "points": points, "workload": work, "bounds": bounds}
    )
    return with_server(chosen, **changed)


class StartedOnce(GpuGuard):
    """Looks for strangers on the GPU before the first start alone: servers that start together are strangers to each other
    until they are ready. Samples are watched as ever."""

    def before_start(self) -> None:
        if not self.ours():
            super().before_start()


def ready(name: str, host: LocalHost) -> Sampler:
    """The host's server, started and ready."""
    began = time.monotonic()
    sampler = host.sampler(1)
    say(f"{name}: server ready after {time.monotonic() - began:.0f} s")
    return sampler


@contextlib.contextmanager
def serving(asked: argparse.Namespace, states: Mapping[str, Recipe]) -> Iterator[Bench]:
    """All servers up and warm; they end with the block. Raises ServerError or EvaluationError."""
    stamp = time.strftime("%H%M%S")
    first = next(iter(states.values()))
    shared: list[SharedServer] = []
    with StartedOnce(first) as gpus, Client(asked.out / "client-preload.log", first.server.env) as client:
        gpus.helpers.append(client.pids)
        try:
            hosts: dict[str, LocalHost] = {}
            for index, (name, state) in enumerate(states.items()):
                folder = asked.out / f"start-{stamp}-{index}"
                options = Options(state, asked.recipe, tuple(state.concurrencies), 2, 2, asked.out, folder)
                shared.append(SharedServer(folder / "shared", paths.ledger_dir(), state.limits.stop_seconds))
                hosts[name] = LocalHost(options, state, shared[-1], client, lambda line: None, gpus)
            # The first compiles what all of them need; with --together the others then start at once.
            samplers = {name: ready(name, hosts[name]) for name in ([*hosts][:1] if asked.together else hosts)}
            later = [name for name in hosts if name not in samplers]
            with ThreadPoolExecutor(max(1, len(later))) as pool:
                samplers |= dict(zip(later, pool.map(lambda name: ready(name, hosts[name]), later), strict=True))
            client.wait_ready()
            bench = Bench(first, samplers, random.Random(time.time_ns()), say)
            bench.warm_up()
            say("warm; prompts a sample: " + ", ".join(f"C={c} {p.num_prompts}" for c, p in bench.plans.items()))
            yield bench
        finally:
            for one in shared:
                one.release()


def block(
    asked: argparse.Namespace, bench: Bench, names: Sequence[str], chosen: Recipe, slow: Mapping[str, str]
) -> None:
    """One A/B run of each kind, on the same rounds. Other work that must not run beside it waits for ``--lock``."""
    changed, same = [n for n in names[1:] if n != SECOND], [n for n in names[1:] if n == SECOND]
    with locked(asked.lock):
        began, before = time.time(), bench.thrown_away

        def more(count: int) -> Rounds:
            return bench.rounds(names, count, chosen.concurrencies)

        # A/A alone has nothing to wait for: it goes to the end, as an A/B run of unchanged code does.
        most = max(asked.pairs, asked.max_pairs or 0)
        least = asked.pairs if changed else most
        rounds, found = judge_runs(chosen, more, FIRST, changed, same, least, most)
    keep(asked.out / "samples.jsonl", flat(rounds, began))
    for name in names[1:]:
        row = found[name]
        row |= {"kind": "A/A" if name == SECOND else name, "how": slow.get(name, ""), "began": began}
        row |= {
            "thrown_away": bench.thrown_away - before,
            "recipe": chosen.name,
            "at_most": most,
            "seconds": round(time.time() - began, 1),
        }
        keep(asked.out / "runs.jsonl", [row])
        changes = ", ".join(f"C={c} {v:+.1%}±{row['errors'][c]:.1%}" for c, v in row["step_change"].items())
        say(f"{row['kind']}: {row['outcome']} (step time {changes}); {row['explained'] or 'nothing to explain'}")


@contextlib.contextmanager
def locked(path: Path | None) -> Iterator[None]:
    """Hold ``path`` as flock(1) does."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def flat(rounds: Rounds, began: float) -> list[dict[str, Any]]:
    return [
        {
            "block": began,
            "c": concurrency,
            "round": index,
            "server": name,
            "throughput": sample.output_throughput,
            "step_ms": sample.step_ms,
            "started_at": sample.started_at,
        }
        for concurrency, many in rounds.items()
        for index, one in enumerate(many)
        for name, sample in one.items()
    ]


def keep(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), line, flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    option = parser.add_argument
    option("--out", type=Path, required=True)
    option("--recipe", type=Path, default=HERE / "cpu.toml")
    option("--slow", nargs="*", default=["step:share=0.10", "request:request_ms=0.25"], metavar="NAME:HOW")
    option("--blocks", type=int, default=10)
    option("--extra-aa", type=int, default=0, help="blocks of A/A alone, after the others")
    option("--pairs", type=int, default=12)
    option("--max-pairs", type=int, help="go on to so many where an answer is not clear (default: no further)")
    option("--blocks-a-start", type=int, default=2)
    option("--points", type=lambda text: [int(c) for c in text.split(",")], default=[])
    option("--seconds", type=float, help="least length of a sample instead of the recipe's")
    option(
        "--prompts",
        type=int,
        help="least number of prompts a sample for each request in flight instead of the recipe's",
    )
    option("--spread", type=float, help="relative spread between server starts instead of the recipe's")
    option("--set", nargs="*", default=[], metavar="ARG=JSON", help="server arguments instead of the recipe's")
    option(
        "--model", nargs="*", default=[], metavar="OPTION=JSON", help="of the generated model instead of the recipe's"
    )
    option("--budget", type=float, default=1e9, help="seconds after which no block is begun")
    option("--together", action="store_true", help="start all servers but the first at the same time")
    option("--lock", type=Path, help="file to lock (as flock does) while samples are taken")
    option("--page", metavar="SECTION", help="put DIR's counts into docs/evaluation.md and end")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
