"""Each wait, fence and barrier of the Gluon decode is removed in turn, and the emulator has to notice.

A fault shows as a race, a read that no fence precedes, a deadlock or a wrong result; which interleaving is run matters little,
since accesses are checked against what orders them and not against what happened.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter

import pytest
import triton
from hypothesis import settings
from kit.cache import DecodeCase, DecodeInputs, Source, build
from kit.gluon_compiled import SOURCE
from kit.gluon_decode import assert_right, decode, kind_of, program
from ptx.errors import EmulationError, UnknownInstructionError

DEEP = settings.get_current_profile_name() == "deep"
INTERLEAVINGS = 6 if DEEP else 1

Point = tuple[str, str, str]
"""An instruction's kind, the function of the kernel it comes from, and its line there."""

KINDS = {
    "mbarrier.try_wait": "wait", "fence.proxy": "fence", "wgmma.fence": "wgmma.fence", "wgmma.wait": "wgmma.wait",
    "bar.sync": "bar.sync", "barrier.sync": "barrier.sync",
}  # fmt: skip
# Without an arrival, an initialisation or a commit nearly everything stands still: not worth the time of every run.
RARER = {"mbarrier.init": "init", "mbarrier.arrive": "arrive", "wgmma.commit": "commit"}
SOUGHT = KINDS | RARER if DEEP else KINDS
SECOND_SCORE = "score = warpgroup_mma(queries_shared.index(1), right.permute((1, 0)), score, is_async=True)"
SECOND_STORE = "queries_shared.index(1).store(gl.load(q_at + (256 + dims) * q_stride_d, mask=live_h, other=0.0))"
REDUNDANT: dict[Point, str] = {
    ("fence", "dsv4_sparse_mla_hopper_kernel", "fence_async_shared()"): "only ordinary instructions use the barriers",
    ("wait", "_score", "mbarrier.wait(taken.index(stage), again ^ 1)"): (
        "the tile's second half came through free, which the second consumer gives back after it has read the weights"
    ),
    ("wait", "_second_half", "mbarrier.wait(scored, (turn + 1) & 1)"): (
        "an order of products for speed, the next scores first: nothing is read because of it"
    ),
    ("wait", "_second_half", "mbarrier.wait(ready.index(2 * stage + 1), again)"): (
        "the first consumer has waited for it before it handed its weights over"
    ),
    ("wgmma.fence", "_score", SECOND_SCORE): "nothing touches the sums between two products that add to them",
    ("bar.sync", "_score", SECOND_STORE): "the compiler's, between two stores to different bytes",
    ("bar.sync", "_score", "mbarrier.arrive(scored, count=1)"): "tells of nothing that is read, see the wait for it",
    ("bar.sync", "_second_half", "mbarrier.arrive(taken.index(stage), count=1)"): (
        "the arrival before it had its barrier, and nothing happens in between"
    ),
}
FIRST_SCORE = (
    "score = warpgroup_mma(queries_shared.index(0), left.permute((1, 0)), score, use_acc=False, is_async=True)"
)
REDUNDANT_OF_RARER: dict[Point, str] = {
    ("commit", "_score", FIRST_SCORE): "the next commit takes these products along, and the wait is for all"
}
# Before 3.8 Triton put barriers around every wait and initialisation, besides those before the arrivals.
OLDER = "what they order a wait orders by itself, or the barrier that comes next"
REDUNDANT_BEFORE_3_8: dict[Point, str] = {
    ("bar.sync", function, text): OLDER
    for function, text in (
        ("dsv4_sparse_mla_hopper_kernel", "mbarrier.init(ready.index(half), count=1)"),
        ("dsv4_sparse_mla_hopper_kernel", "mbarrier.init(handed.index(stage), count=1)"),
        ("_score", "mbarrier.wait(ready.index(2 * stage), again)"),
        ("_score", FIRST_SCORE),
        ("_score", "live = live_lines.index(stage).load(gl.SliceLayout(0, SCORE)) != 0"),
        ("_score", "acc = warpgroup_mma(gl.convert_layout(rounded, WEIGHT), left, acc, is_async=True)"),
        ("_score", "mbarrier.wait(taken.index(turns & 1), ((turns >> 1) & 1) ^ 1)"),
        ("_score", "factors.index(turns & 1).store(factor)"),
        ("_read", "mbarrier.wait(free.index(2 * stage), ((turn >> 1) & 1) ^ 1)"),
        ("_read", "mbarrier.wait(free.index(2 * stage + 1), ((turn >> 1) & 1) ^ 1)"),
        ("_second_half", "mbarrier.wait(handed.index(stage), again)"),
        ("_second_half", "mbarrier.wait(handed.index(turns & 1), (turns >> 1) & 1)"),
    )
}


@pytest.mark.parametrize("splits", [1, 2] if DEEP else [1])
def test_without_a_wait_a_fence_or_a_barrier_the_kernel_is_caught(splits: int) -> None:
    """Each removed alone; five tiles a block, so that both stages are used again. Save those that are REDUNDANT, each."""
    main, extra = 192 * splits, 128 * splits
    described = DecodeCase(1, 1, 64, Source(256, splits + 1, main, (main,)), Source(64, 3 * splits, extra, (extra,)))
    inputs = build(described, "cpu")
    reached: set[int] = set()
    assert_right(decode(inputs, splits, reached=reached), inputs)
    instructions = program(kind_of(inputs, splits)).instructions
    caught: set[Point] = set()
    unnoticed: set[Point] = set()
    tried = Counter[str]()
    for number, instruction in enumerate(instructions):
        kind = next((kind for op, kind in SOUGHT.items() if instruction.op.startswith(op)), None)
        # The compiler adds a branch for warps without work, which this kernel has none of.
        if kind is None or number not in reached:
            continue
        tried[kind] += 1
        # A wait is tried in a loop: with it goes the branch that repeats it.
        gone = (number, number + 1) if kind == "wait" else (number,)
        (caught if noticed(inputs, splits, gone) else unnoticed).add((kind, *where(instruction.line)))
    assert set(KINDS.values()) <= set(tried), f"only {tried} were found in the program"
    allowed = REDUNDANT | (REDUNDANT_BEFORE_3_8 if triton_version() < (3, 8) else {})
    assert unnoticed <= set(allowed | REDUNDANT_OF_RARER), "the kernel is wrong without these, and nobody noticed"
    assert set(REDUNDANT) <= unnoticed - caught, "these are needed, contrary to what is written here"


def noticed(inputs: DecodeInputs, splits: int, gone: tuple[int, ...]) -> bool:
    """Whether some interleaving shows that these instructions are missing; one is enough for nearly all."""
    for seed in range(INTERLEAVINGS):
        try:
            assert_right(decode(inputs, splits, seed, gone), inputs)
        except UnknownInstructionError:
            raise
        except (EmulationError, AssertionError):
            return True
    return False


@functools.cache
def source_lines() -> list[tuple[str, str]]:
    """For each line of the kernel's source the function it belongs to, and its text."""
    text = SOURCE.read_text()
    lines = [("", line.strip()) for line in text.splitlines()]
    for each in ast.parse(text).body:
        if isinstance(each, ast.FunctionDef):
            for at in range(each.lineno - 1, each.end_lineno or 0):
                lines[at] = each.name, lines[at][1]
    return lines


def where(line: int) -> tuple[str, str]:
    return source_lines()[line - 1]


def triton_version() -> tuple[int, ...]:
    return tuple(int(part) for part in triton.__version__.split(".")[:2])
