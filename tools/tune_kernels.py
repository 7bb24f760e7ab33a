"""Tune the kernels' tables, or say what each configuration of a table comes to: ``python tools/tune_kernels.py COMMAND``.

show   Compile every configuration of a card's tables, whatever card is here, and print one table for the card: shared
       memory, registers, spills, tensor cores, and the least time of a shape of each (for sm_120 at that card's
       published rates, as a prediction).
tune   On a card: for each row of one kernel's table try the axes given (``--axis config.block_n=32,64``), refuse what does
       not compile within the limits of *every* card that shares the row's kernel, check every output against the
       references, time the rest by cold graph replays, and print the rows to put into the table.

A tuned row is data: put it into ``kernels/dsv4_kernels/KERNEL_table.py`` and run the correctness suite, which compiles and
proves every configuration of every table. Nothing is tuned while a kernel is called.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import sys
import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / folder) for folder in ("kernels", "tests", "tests/correctness"))]

from dsv4_kernels.card import CARDS, Card, card_for  # noqa: E402

from perfgate.kernelbench.roofline import RTX_PRO_6000, least_us  # noqa: E402
from perfgate.kernelbench.shapes import (  # noqa: E402
    DecodeShape,
    HcShape,
    IndexerShape,
    Shape,
    TopKShape,
)
from perfgate.kernelbench.tuning import Candidate, best, candidates, ratio  # noqa: E402


@dataclass(frozen=True)
class Tunable:
    """A kernel: its module, the shapes to tune on, and the arguments by which its table is asked for a row."""

    module: str
    shapes: tuple[Shape, ...]
    ask: Callable[[Any], tuple[int, ...]]

    @property
    def table(self) -> Any:
        return importlib.import_module(f"dsv4_kernels.{self.module}_table")


TUNABLE = {
    "decode": Tunable(
        "sparse_mla",
        tuple(DecodeShape(b, h, 128, 512) for h in (16, 32, 64, 128) for b in (1, 4, 16, 64, 128)),
        lambda s: (s.batch, s.heads),
    ),
    "indexer": Tunable(
        "indexer",
        tuple(IndexerShape(b, n, n) for b, n in ((1, 512), (1, 16_384), (16, 16_384), (64, 2048), (64, 16_384))),
        lambda s: (s.batch,),
    ),
    "topk": Tunable(
        "topk",
        tuple(TopKShape(b, n, k) for k in (512, 1024, 2048) for b, n in ((1, 65_536), (16, 16_384), (64, 65_536))),
        lambda s: (s.topk,),
    ),
    "hc": Tunable("hyper_connection", tuple(HcShape(t) for t in (1, 16, 64, 512, 4096, 32_768)), lambda s: (s.batch,)),
}


@contextlib.contextmanager
def table_of(kernel: Tunable, card: Card, rows: tuple[Any, ...]) -> Iterator[None]:
    """Inside, the kernel's table for ``card`` (and the interpreter's) holds these rows, in the tables' own interface."""
    table = kernel.table.TABLE
    names = [name for name in (card.name, "interpreter") if name in table]
    before = {name: table[name] for name in names}
    table.update(dict.fromkeys(names, rows))
    try:
        yield
    finally:
        table.update(before)


def compiled(kernel: Tunable, card: Card) -> list[tuple[Any, Any]]:
    """Every compilation of the kernel's present table for ``card``, with its report."""
    from kit.compiled import inspect

    module = importlib.import_module(f"dsv4_kernels.{kernel.module}")
    return [(case, inspect(case, card)) for case in module.compile_cases(card)]


def refusal(case: Any, report: Any, card: Card) -> str:
    """Why a compilation may not stand in a table, by the correctness suite's own rules; or nothing."""
    if report.error:
        return f"{case.name} does not compile for {card.name}: {report.error.splitlines()[0][:120]}"
    if report.shared > card.shared_bytes:
        return f"{case.name}: {report.shared} bytes of shared memory on {card.name}"
    if case.tensor_cores and not report.mma + report.wgmma:
        return f"{case.name}: no tensor cores on {card.name}"
    if report.stack > case.max_spill_bytes:
        return f"{case.name}: {report.stack} bytes spilled on {card.name}"
    return f"{case.name}: fp64 on {card.name}" if report.fp64 else ""


def buckets(kernel: Tunable, card: Card, shapes: tuple[Shape, ...]) -> dict[Any, list[Shape]]:
    """The shapes by the row of the table that serves them."""
    found: dict[Any, list[Shape]] = {}
    for shape in shapes:
        found.setdefault(kernel.table.choose(card.name, *kernel.ask(shape)), []).append(shape)
    return found


def attempt(kernel: Tunable, row: Any, shapes: list[Shape], here: Card, also: list[Card], time: Any) -> Candidate:
    """One candidate: compiled for every card, checked and timed on every shape. A fault refuses it, and no other."""
    for card in [here, *also]:
        with table_of(kernel, card, (row,)):
            for case, report in compiled(kernel, card):
                if why := refusal(case, report, card):
                    return Candidate(row, why)
    try:
        with table_of(kernel, here, (row,)):
            return Candidate(row, "", {shape.key: time(shape) for shape in shapes})
    except Exception as fault:
        # The other candidates are wanted, whatever becomes of this one.
        return Candidate(row, f"{type(fault).__name__}: {(str(fault).splitlines() or [''])[0][:160]}")


def checked_time(device: Any) -> Callable[[Shape], float]:
    """A shape's median microseconds by graph replay, its output checked in the same call."""
    import statistics

    from kernelbench import body
    from kernelbench.body import Trial
    from kernelbench.peers import implementations

    from perfgate.kernelbench.timing import REPLAYS, gpu_seconds

    # All shapes of a row are met again with every candidate: their references are worked out once.
    body.problem = functools.lru_cache(maxsize=16)(body.problem.__wrapped__)

    def time(shape: Shape) -> float:
        trial = Trial(shape, implementations(shape)[0], device)
        times = []
        for _ in range(REPLAYS):
            before = gpu_seconds()
            trial.replay()
            times.append(gpu_seconds() - before)
        trial.verify()
        return 1e6 * statistics.median(times)

    return time


def tune(options: argparse.Namespace) -> int:
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device is visible: nothing can be tuned here; `show` compiles for any card", file=sys.stderr)
        return 1
    device = torch.device("cuda", torch.cuda.current_device())
    here, _ = card_for(device)
    kernel = TUNABLE[options.kernel]
    axes = {path: [json.loads(v) for v in values.split(",")] for path, _, values in map(_split, options.axis)}
    also = [card for card in CARDS if card.name in options.also]
    log, time, began = [], checked_time(device), clock.monotonic()
    for row, shapes in buckets(kernel, here, kernel.shapes).items():
        print(f"# {', '.join(shape.key for shape in shapes)}", flush=True)
        tried = []
        for one in candidates(row, axes):
            if tried and clock.monotonic() - began > options.seconds:
                print(f"#   out of time before {one}", flush=True)
                break
            tried.append(attempt(kernel, one, shapes, here, also, time))
            log.append({"row": repr(one), "refused": tried[-1].refused, "times_us": dict(tried[-1].times_us)})
            timed = ", ".join(f"{us:.1f}" for us in tried[-1].times_us.values())
            print(f"#   {timed or tried[-1].refused}  {one}", flush=True)
        chosen = best(tried)
        gain = (
            "" if chosen is tried[0] or tried[0].refused else f"  # {ratio(chosen, tried[0]):.3f} of the table's time"
        )
        print(f"{chosen.row!r},{gain}", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"card": here.name, "kernel": options.kernel, "tried": log}, indent=1) + "\n")
    return 0


def _split(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def show(options: argparse.Namespace) -> int:
    """One table for a card; 1 where a configuration may not stand in it."""
    import triton

    card = next(card for card in CARDS if card.name == options.card)
    wrong = 0
    print(f"{card.name}, compiled by triton {triton.__version__}; at most {card.shared_bytes} bytes of shared memory")
    print(f"{'compilation':68} {'shared':>7} {'regs':>4} {'spill':>5} {'mma':>4}  verdict")
    for name, kernel in TUNABLE.items():
        for case, report in compiled(kernel, card):
            why = refusal(case, report, card)
            wrong += bool(why)
            units = report.mma + report.wgmma
            print(f"{case.name:68} {report.shared:7} {report.registers:4} {report.stack:5} {units:4}  {why or 'fits'}")
        for row, shapes in buckets(kernel, card, kernel.shapes).items():
            print(f"  {row}")
            if card.name == "sm_120":
                times = ", ".join(f"{s.key} {least_us(s.work, RTX_PRO_6000):.1f}" for s in shapes)
                print(f"    least us, predicted: {times}")
            else:
                print(f"    serves {', '.join(s.key for s in shapes)} ({name})")
    if card.name == "sm_120":
        print(f"predicted from {RTX_PRO_6000.source}")
    return 1 if wrong else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("show")
    one.add_argument("--card", choices=[card.name for card in CARDS], required=True)
    one = commands.add_parser("tune")
    one.add_argument("kernel", choices=list(TUNABLE))
    one.add_argument("--axis", action="append", required=True, help="FIELD=VALUE,VALUE… of a row; may be repeated")
    one.add_argument("--also", nargs="*", default=[], help="cards for which a candidate has to compile too")
    one.add_argument("--seconds", type=float, default=300, help="start no candidate after this long")
    one.add_argument("--out", type=Path, help="JSON file for everything tried")
    options = parser.parse_args(arguments)
    return {"show": show, "tune": tune}[options.command](options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
