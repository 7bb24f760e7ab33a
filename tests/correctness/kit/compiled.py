"""Compile every configuration a launcher can choose, for cards that aren't there, and read off what matters.

Run as a program it prints its reports as JSON. That takes a process of its own: Triton decides when it is imported
whether kernels are compiled or interpreted, and the tests around may be interpreting.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dsv4_kernels
from dsv4_kernels.card import CARDS, Card, CompileCase
from filelock import FileLock

MODULES = ("sparse_mla", "indexer", "topk", "hyper_connection")
TIMEOUT_S = 600


@dataclass(frozen=True)
class Compiled:
    """What one compilation came to: bytes, registers, counts of instructions in the PTX; `error` if it failed.

    `narrow`: stride arguments that are multiplied as 32 bits. Of a Gluon kernel it is not known.
    """

    name: str
    card: str
    shared: int = 0
    registers: int = 0
    stack: int = 0
    mma: int = 0
    wgmma: int = 0
    fp64: int = 0
    narrow: tuple[str, ...] = ()
    error: str = ""


def card_named(name: str) -> Card:
    return next(card for card in CARDS if card.name == name)


def cases(module: str, card: Card) -> list[CompileCase]:
    """Return the compilations that kernel module `module` announces for `card`."""
    return list(importlib.import_module(f"dsv4_kernels.{module}").compile_cases(card))


@functools.cache
def reports(module: str, card: str) -> dict[str, Compiled]:
    """Compile all of a module's configurations for a card in a child process; return the reports by name."""
    root = Path(dsv4_kernels.__file__).parent.parent
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(root), environment.get("PYTHONPATH", "")])
    # Workers that ask for the same would compile it twice: the second waits, and finds Triton's cache filled.
    user = hashlib.sha256(str(Path.home()).encode()).hexdigest()[:12]
    with FileLock(Path(tempfile.gettempdir()) / f"dsv4-compiled-{user}-{module}-{card}.lock"):
        command = [sys.executable, __file__, module, card]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {child.returncode}:\n{child.stderr[-4000:]}")
    return {entry["name"]: Compiled(**entry) for entry in json.loads(child.stdout)}


def compile_case(case: CompileCase, card: Card) -> Any:
    """Triton's compiled kernel of one case for a card. Raises what Triton raises."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    front_end = ASTSource
    if case.gluon:
        from triton.experimental.gluon._runtime import GluonASTSource as front_end
    names = case.kernel.arg_names
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in case.aligned}
    source = front_end(case.kernel, dict(case.signature), dict(case.constexprs), attributes)
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages, **case.options}
    return triton.compile(source, target=GPUTarget("cuda", card.capability, 32), options=options)


def inspect(case: CompileCase, card: Card) -> Compiled:
    """Compile one case for a card and read the result; a failure to compile is reported, not raised."""
    from triton.compiler.errors import CompilationError

    try:
        kernel = compile_case(case, card)
    except (CompilationError, RuntimeError) as error:
        return Compiled(case.name, card.name, error=f"{type(error).__name__}: {error}")
    ptx = kernel.asm["ptx"]
    registers, stack = _resources(kernel.asm["cubin"])
    return Compiled(
        name=case.name,
        card=card.name,
        shared=kernel.metadata.shared,
        registers=registers,
        stack=stack,
        mma=len(re.findall(r"\bmma\.sync", ptx)),
        wgmma=ptx.count("wgmma.mma_async"),
        fp64=len(re.findall(r"\.f64\b", ptx)),
        narrow=tuple(name for name in case.kernel.arg_names if "stride" in name and _narrow(name, kernel.asm)),
    )


def _narrow(name: str, asm: dict[str, str]) -> bool:
    """Whether Triton's first form of a kernel uses a value otherwise than to widen it, or to choose between it and another."""
    for line in asm.get("ttir", "").splitlines():
        made, _, use = line.rpartition(" = ")
        if not re.search(rf"%{name}\b(?!:)", use) or "arith.extsi" in use:
            continue
        if not use.startswith("arith.select") or _narrow(made.strip().lstrip("%"), asm):
            return True
    return False


def _resources(cubin: bytes) -> tuple[int, int]:
    """Return registers a thread and bytes of stack a thread (where spilled registers go), by Triton's own cuobjdump."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"REG:(\d+) STACK:(\d+)", listing)
    if len(found) != 1:
        raise RuntimeError(f"{tool} names {len(found)} functions with registers and stack, not one:\n{listing}")
    return int(found[0][0]), int(found[0][1])


def main(module: str, card_name: str) -> None:
    card = card_named(card_name)
    print(json.dumps([asdict(inspect(case, card)) for case in cases(module, card)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
