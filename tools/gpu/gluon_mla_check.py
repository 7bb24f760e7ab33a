"""Check, then time, the Gluon decode (sparse_mla_hopper) on a Hopper card: ``timeout 150 python tools/gpu/gluon_mla_check.py``.

First the suite's poisoned random cases against the float64 oracle, until --seconds are over or one fails; then, at 128+512 rows
of 64 heads, its time beside the Triton kernel and FlashMLA, over every useful number of splits. A kernel whose barriers are
wrong hangs: give it a timeout. Exit status 1: something was wrong, and nothing is timed.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
import triton  # noqa: E402
from dsv4_kernels import reference  # noqa: E402
from dsv4_kernels.card import card_for  # noqa: E402
from dsv4_kernels.sparse_mla import launch  # noqa: E402
from dsv4_kernels.sparse_mla_table import HOPPER, choose, split_count  # noqa: E402
from kit.cache import DecodeInputs, build, poisoned_memory  # noqa: E402
from kit.compare import assert_decode_close  # noqa: E402
from kit.rounding import rounding_of  # noqa: E402
from mla_check import random_case  # noqa: E402
from mla_sweep import flash_mla, make_inputs, time_us  # noqa: E402

REPEATS = 20


def check(seconds: float, device: torch.device) -> int:
    """Random cases, the plain one first. Prints what was wrong and returns how many cases were.

    Outputs are poisoned before each call, and calls repeated: the sums' order is fixed, so that a race shows as a difference.
    """
    rng, began, cases = random.Random(1), time.monotonic(), 0
    plain = make_inputs(2, 64, (128, 512), device)[0]
    while cases == 0 or time.monotonic() - began < seconds:
        inputs = plain if cases == 0 else build(random_case(rng, cases), device)
        expected, rounding = reference.sparse_mla_decode(*inputs.arguments()), rounding_of(inputs)
        for splits in (1, 2, 7):
            print(f"case {cases}, {splits} splits", end="\r", flush=True)  # what a hang was in
            actual = None
            try:
                with poisoned_memory():
                    actual = launch(HOPPER, splits, *inputs.launch_arguments())
                torch.cuda.synchronize()
                assert_decode_close(actual, expected, rounding)
                for turn in range(REPEATS):
                    # A merge that starts early waits for the sums all the same.
                    config = replace(HOPPER, pdl=turn % 2 == 1)
                    with poisoned_memory():
                        again = launch(config, splits, *inputs.launch_arguments())
                    assert all(
                        torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(actual, again, strict=True)
                    ), config
            except Exception as fault:  # a launch that fails is a wrong case like any other, and ends the check
                print(f"case {cases}, {splits} splits: {type(fault).__name__}: {str(fault)[:600]}", flush=True)
                if actual is not None and isinstance(fault, AssertionError):
                    difference = (actual[0].float() - expected[0].float()).abs()
                    print("largest difference by head, first row:", difference[0, 0].amax(-1)[:8].tolist())
                    by_block = difference[0, 0].view(difference.shape[2], 8, 64).amax((0, 2))
                    print("and by 64 dimensions:", by_block.tolist())
                return 1
        cases += 1
    print(f"{cases} cases right, 3 numbers of splits each, {REPEATS} repeats bit for bit", flush=True)
    return 0


def tried(name: str, measure: Callable[[], float]) -> str:
    """A cell of the table; what fails costs no other cell."""
    try:
        return f"{name} {measure():.1f}"
    except Exception as fault:  # its cell says so
        return f"{name} {type(fault).__name__} {(str(fault).splitlines() or [''])[0][:60]}"


def timed(inputs: list[DecodeInputs], splits: int, pdl: bool = False) -> float:
    config = replace(HOPPER, pdl=pdl)
    return time_us([functools.partial(launch, config, splits, *each.launch_arguments()) for each in inputs])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="of random cases")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128,256")
    options = parser.parse_args()
    device = torch.device("cuda")
    card, sms = card_for(device)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    if check(options.seconds, device):
        return 1
    for batch in map(int, options.batches.split(",")):
        inputs = make_inputs(batch, 64, (128, 512), device)
        rule = choose(card.name, batch, 64, interpreted=True)  # Triton's own
        count = split_count(rule, batch, 64, 640, sms)
        own = [functools.partial(launch, rule.config, count, *each.launch_arguments()) for each in inputs]
        cells = [tried(f"Triton/{count}", functools.partial(time_us, own))]
        cells.append(tried("FlashMLA", lambda made=inputs: time_us([flash_mla(each) for each in made])))
        useful = sorted({-(-10 // -(-10 // n)) for n in range(1, 11)})  # others leave the same longest split
        for splits in useful:
            if splits == 1 or batch * splits <= 3 * sms:
                cells.append(tried(f"gluon/{splits}", functools.partial(timed, inputs, splits)))
                if splits > 1:
                    cells.append(tried(f"pdl/{splits}", functools.partial(timed, inputs, splits, True)))
        print(f"B={batch}: " + "  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
