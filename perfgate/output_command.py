"""``python -m perfgate output``: hold one recipe's answers to another's, without measuring speed (edge)."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfgate import output_gate, output_report, paths, ready, recipe, replay
from perfgate.campaign import start_failure
from perfgate.gpu import GpuError
from perfgate.gpu_guard import GpuGuard
from perfgate.host import model_folder, start_log
from perfgate.proof import PatchProof
from perfgate.recipe import Output, Recipe, RecipeError
from perfgate.redact import redact_text
from perfgate.report import words
from perfgate.result import CheckResult
from perfgate.server import Server, ServerError, start, stop
from perfgate.server.lifecycle import NotProved
from perfgate.server.processes import end_leftovers
from perfgate.session import measuring

ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str]) -> int:
    """Print the check's row. 0 where the answers agree, 1 where they do not or could not be compared, 2 for bad options."""
    given = _parse(arguments)
    try:
        new, old = (recipe.load(recipe.find(name, ROOT / "recipes")) for name in (given.recipe, given.against))
    except RecipeError as error:
        print(error, file=sys.stderr)
        return 2
    given.report.mkdir(parents=True, exist_ok=True)
    path = given.report / "output.json"
    path.unlink(missing_ok=True)
    try:
        found = compare(new, old, given.report)
    except ServerError as error:
        failure = start_failure(error)
        found = output_report.not_made(failure.message, failure.evidence, failure.advice)
    except (output_gate.CheckFailed, GpuError) as error:
        found = output_report.not_made(redact_text(str(error)), getattr(error, "evidence", ()))
    path.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print("\n".join(shown(found)))
    return 0 if found.outcome.passes else 1


def compare(new: Recipe, old: Recipe, report: Path) -> CheckResult:
    """Start the old server, keep its answers, stop it, and let the new one follow them: one server's memory is enough.

    Without a table in the new recipe the defaults of ``[output]`` hold. Raises CheckFailed, ServerError and GpuError.
    """
    table = new.output or Output()
    with measuring(_show), GpuGuard(new, old) as gpus:
        for line in end_leftovers(paths.ledger_dir()):
            _show(line)
        with _server(old, report / "old.log", gpus) as server:
            asked = output_gate.prompts(table, output_gate.vocabulary(server))
            own = output_gate.follow_itself(server, asked, table.steps, old.limits.sample_seconds)
            known = output_gate.vocabulary(server)
        with _server(new, report / "new.log", gpus) as server:
            if output_gate.vocabulary(server) < known:
                raise output_gate.CheckFailed(
                    f"{new.name} knows {output_gate.vocabulary(server)} token ids and {old.name} {known}: not one model"
                )
            candidate = output_gate.follow(server, asked, own.first, new.limits.sample_seconds)
            output_gate.keep(report, own, candidate)
    return output_report.row(*output_gate.names(old, new), own, candidate, table.floor)


def shown(found: CheckResult) -> list[str]:
    """The row as lines for a terminal."""
    head = f"{words.GLYPHS[found.outcome]} {found.outcome} {found.name}: {words.number(found.value)} {found.unit}"
    if found.bound is not None:
        head += f", bound {words.number(found.bound)}"
    lines = [head, f"  {found.why}", *(f"  | {line}" for line in found.evidence)]
    return lines + ([f"  next: {found.advice}"] if found.advice else [])


@contextlib.contextmanager
def _server(chosen: Recipe, log: Path, gpus: GpuGuard) -> Iterator[Server]:
    """A recipe's server, warmed as a measured one is, and proved by the end. Raises ServerError and GpuError."""
    gpus.before_start()
    counts = ready.clean_counts(log)
    _show(f"starting {chosen.name}")
    env = {"DSV4_COUNTS_FILE": str(counts)}
    server = start(chosen, model_folder(chosen), log, paths.ledger_dir(), None, _show, env)
    live: list[Server] = [server]
    gpus.servers.append(lambda: {pid for one in live for pid in one.pids()})
    try:
        proof = PatchProof.of(chosen, counts, server.model, server.info, start_log(server))
        ready.make_ready(chosen, server, proof, [], _show)
        yield server
        # Without graphs or a warm-up there was nothing to see before the answers.
        problems = proof.settled(log=ready.log_text(server))
        if proof.required and proof.sizes and not any(p.invalid for p in problems):
            _show(f"proving by a trace that {chosen.name}'s graphs hold the patches")
            problems += replay.prove(server, proof, log.parent / "traces" / log.stem)
        if unproved := [p for p in problems if p.invalid]:
            raise NotProved(unproved, server.log)
    finally:
        live.clear()
        stop(server, paths.ledger_dir(), chosen.limits.stop_seconds)


def _show(line: str) -> None:
    print(f"  perfgate: {line}", file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m perfgate output",
        description="Hold one recipe's answers to another's, one server after the other, without measuring speed.",
    )
    parser.add_argument("--recipe", required=True, metavar="NAME", help="the new side: a name in recipes/, or a file")
    parser.add_argument(
        "--against", required=True, metavar="NAME", help="the old side, whose answers are the reference"
    )
    default = Path.cwd() / "perf-report" / f"{time.strftime('%Y%m%d-%H%M%S')}-output"
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        default=default,
        help="for logs, output.json and answers.json.gz (default: in perf-report)",
    )
    return parser.parse_args(arguments)
