"""Compile the Gluon decode for Hopper, for calls of several kinds, without a card.

Run as a program it prints its kernels as JSON, in a process of its own: Triton decides when it is imported whether kernels
are compiled or interpreted, and Gluon's cannot be interpreted.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import dsv4_kernels
from filelock import FileLock

SOURCE = Path(dsv4_kernels.__file__).parent / "sparse_mla_hopper.py"
TIMEOUT_S = 300
FLAGS = ("HAS_LENGTH", "HAS_EXTRA", "HAS_EXTRA_LENGTH", "HAS_SINK")
STEPS = ("q_stride_d", "index_stride_k", "extra_index_stride_k")  # constants where a call's are 1


@dataclass(frozen=True)
class Compiled:
    """One compilation: its PTX, the parameters it takes by name, bytes of shared memory, warps and heads of a block."""

    ptx: str
    parameters: tuple[str, ...]
    shared: int
    warps: int
    heads: int
    tokens: int


@functools.cache
def kernels() -> dict[str, Compiled]:
    """Compile for every kind of call in a child process; return the kernels by ``name_of`` their call."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    roots = [str(SOURCE.parents[1]), str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(roots)
    user = hashlib.sha256(str(Path.home()).encode()).hexdigest()[:12]
    # Workers that ask for the same would compile it twice: the second waits, and finds Triton's cache filled.
    with FileLock(Path(tempfile.gettempdir()) / f"dsv4-gluon-{user}.lock"):
        command = [sys.executable, __file__]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {child.returncode}:\n{child.stderr[-4000:]}")
    read = {
        name: entry | {"parameters": tuple(entry["parameters"])} for name, entry in json.loads(child.stdout).items()
    }
    return {name: Compiled(**entry) for name, entry in read.items()}


def name_of(flags: dict[str, bool], steps: dict[str, bool], split: bool) -> str:
    """A call's kind: which of FLAGS hold, which of STEPS are 1, and whether its tokens are split."""
    holding = [flag for flag, holds in flags.items() if holds] + [f"{step}=1" for step, one in steps.items() if one]
    return " ".join([*sorted(holding), "split" if split else "whole"])


# Every flag set and all inputs contiguous, as in serving; none set and all strided; and a mixture.
KINDS = (
    (dict.fromkeys(FLAGS, True), dict.fromkeys(STEPS, True), False),
    (dict.fromkeys(FLAGS, True), dict.fromkeys(STEPS, True), True),
    (dict.fromkeys(FLAGS, False), dict.fromkeys(STEPS, False), False),
    (
        {"HAS_LENGTH": True, "HAS_EXTRA": True, "HAS_EXTRA_LENGTH": False, "HAS_SINK": False},
        {"q_stride_d": True, "index_stride_k": True, "extra_index_stride_k": False},
        True,
    ),
)


def main() -> None:
    from dataclasses import replace

    from dsv4_kernels.card import SM90
    from dsv4_kernels.sparse_mla import compile_cases
    from dsv4_kernels.sparse_mla_table import HOPPER

    from kit.compiled import compile_case

    announced = {case.constexprs["SPLIT"]: case for case in compile_cases(SM90) if case.gluon}
    found = {}
    for flags, steps, split in KINDS:
        case = announced[split]
        assert set(FLAGS + STEPS) <= set(case.constexprs), "kinds of calls are named by other constants than its own"
        constants = {name: value for name, value in case.constexprs.items() if name not in STEPS} | flags
        constants |= {step: 1 for step, one in steps.items() if one}
        # What is no constant of this call is an argument.
        signature = {
            name: "constexpr" if name in constants else "i32" if kind == "constexpr" else kind
            for name, kind in case.signature.items()
        }
        result = compile_case(replace(case, constexprs=constants, signature=signature), SM90)
        found[name_of(flags, steps, split)] = {
            "ptx": result.asm["ptx"],
            "parameters": [name for name in case.kernel.arg_names if name not in constants],
            "shared": result.metadata.shared,
            "warps": result.metadata.num_warps,
            "heads": HOPPER.block_h,
            "tokens": HOPPER.block_n,
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
