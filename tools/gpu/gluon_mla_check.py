"""Check, then time, the Gluon decode of gluon_mla.py on a Hopper card: ``timeout 150 python tools/gpu/gluon_mla_check.py``.

First the suite's poisoned random cases against the float64 oracle, until --seconds are over or one fails; then, at 128+512 rows
of 64 heads, its time beside the suite's own kernel and FlashMLA, over every useful number of splits. A kernel whose barriers are
wrong hangs: give it a timeout. Exit status 1: something was wrong, and nothing is timed.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import gluon_mla  # noqa: E402
import torch  # noqa: E402
from dsv4_kernels import layout, reference  # noqa: E402
from dsv4_kernels.card import card_for  # noqa: E402
from dsv4_kernels.sparse_mla import LOG2E, dsv4_sparse_mla_merge_kernel, launch  # noqa: E402
from dsv4_kernels.sparse_mla_table import choose, choose_merge, split_count  # noqa: E402
from kit.cache import DecodeInputs, build, poisoned_memory  # noqa: E402
from kit.compare import assert_decode_close  # noqa: E402
from kit.rounding import rounding_of  # noqa: E402
from mla_check import random_case  # noqa: E402
from mla_sweep import flash_mla, make_inputs, time_us  # noqa: E402


def decode(
    splits: int, registers: tuple[int, int], q, k_cache, indices, topk_length, attn_sink, softmax_scale,
    extra_k_cache=None, extra_indices=None, extra_topk_length=None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """As ``dsv4_kernels.sparse_mla.launch``, with the decode of gluon_mla.py and the suite's merge."""
    batch, queries, heads, _ = q.shape
    rows = batch * queries
    out = torch.empty((batch, queries, heads, layout.HEAD_DIM), dtype=torch.bfloat16, device=q.device)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device)
    part, part_lse = out, lse
    if splits > 1:
        part = torch.empty((rows, splits, heads, layout.HEAD_DIM), dtype=torch.float32, device=q.device)
        part_lse = torch.empty((rows, splits, heads), dtype=torch.float32, device=q.device)
    extra = extra_k_cache is not None
    main_pages = layout.geometry(k_cache)
    extra_pages = layout.geometry(extra_k_cache, "extra_k_cache") if extra else main_pages
    extra_index = extra_indices if extra else indices
    sink = lse if attn_sink is None else attn_sink
    length = indices if topk_length is None else topk_length
    extra_length = indices if extra_topk_length is None else extra_topk_length
    flags = {
        "HAS_LENGTH": topk_length is not None,
        "HAS_EXTRA": extra,
        "HAS_EXTRA_LENGTH": extra_topk_length is not None,
        "HAS_SINK": attn_sink is not None,
    }
    programs = rows * splits * -(-heads // gluon_mla.HEADS)
    gluon_mla.dsv4_sparse_mla_hopper_kernel[(programs,)](
        q, k_cache.view(torch.uint8), indices, length,
        extra_k_cache.view(torch.uint8) if extra else k_cache.view(torch.uint8), extra_index, extra_length, sink,
        out, lse, part, part_lse,
        softmax_scale * LOG2E, heads, queries, splits, indices.shape[2], extra_index.shape[2],
        length.stride(0), extra_length.stride(0),
        main_pages.page_size.bit_length() - 1, extra_pages.page_size.bit_length() - 1,
        main_pages.page_stride, extra_pages.page_stride,
        *q.stride(), *indices.stride(), *extra_index.stride(),
        **flags, SPLIT=splits > 1, HEADS=gluon_mla.HEADS, TOKENS=gluon_mla.TOKENS,
        READER_REGISTERS=registers[0], SECOND_REGISTERS=registers[1], num_warps=4,
    )  # fmt: skip
    if splits > 1:
        merge = choose_merge(splits)
        merge_programs = rows * -(-heads // merge.heads) * (layout.HEAD_DIM // merge.columns)
        dsv4_sparse_mla_merge_kernel[(merge_programs,)](
            part, part_lse, length, extra_length, sink, out, lse,
            heads, queries, splits, indices.shape[2], extra_index.shape[2], length.stride(0), extra_length.stride(0),
            **flags, BLOCK_N=gluon_mla.TOKENS, HEADS=merge.heads, COLUMNS=merge.columns, BLOCK_S=merge.splits, PDL=False,
            INTERPRET=False, num_warps=merge.num_warps,
        )  # fmt: skip
    return out, lse


REPEATS = 20
REGISTERS = (gluon_mla.READER_REGISTERS, gluon_mla.SECOND_REGISTERS)


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
                    actual = decode(splits, REGISTERS, *inputs.launch_arguments())
                torch.cuda.synchronize()
                assert_decode_close(actual, expected, rounding)
                for _ in range(REPEATS):
                    again = decode(splits, REGISTERS, *inputs.launch_arguments())
                    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(actual, again, strict=True))
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


def timed(inputs: list[DecodeInputs], splits: int, registers: tuple[int, int]) -> float:
    def call(each: DecodeInputs) -> Callable[[], object]:
        return lambda: decode(splits, registers, *each.launch_arguments())

    return time_us([call(each) for each in inputs])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="of random cases")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64,128,256")
    options = parser.parse_args()
    device = torch.device("cuda")
    card, sms = card_for(device)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {gluon_mla.triton.__version__}", flush=True
    )
    if check(options.seconds, device):
        return 1
    for batch in map(int, options.batches.split(",")):
        inputs = make_inputs(batch, 64, (128, 512), device)
        rule = choose(card.name, batch, 64)
        count = split_count(rule, batch, 64, 640, sms)
        own = [functools.partial(launch, rule.config, count, *each.launch_arguments()) for each in inputs]
        cells = [tried(f"ours/{count}", functools.partial(time_us, own))]
        cells.append(tried("FlashMLA", lambda made=inputs: time_us([flash_mla(each) for each in made])))
        useful = sorted({-(-10 // -(-10 // n)) for n in range(1, 11)})  # others leave the same longest split
        for splits in useful:
            if splits == 1 or batch * splits <= 3 * sms:
                cells.append(tried(f"gluon/{splits}", functools.partial(timed, inputs, splits, REGISTERS)))
        print(f"B={batch}: " + "  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
