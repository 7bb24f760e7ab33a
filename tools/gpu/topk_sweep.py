"""Check, then time, variants of the top-k on this machine's GPU: ``python tools/gpu/topk_sweep.py``.

Beside SGLang's CUDA ``topk_transform_512_v2`` (judged as a multiset of scores) and torch.topk. Times are medians of
cold CUDA-graph replays over rotating inputs, in microseconds, printed only for an output that was right.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
from dsv4_kernels.card import card_for  # noqa: E402
from dsv4_kernels.topk import _launch  # noqa: E402
from dsv4_kernels.topk_table import TopKConfig, choose  # noqa: E402
from kernel_parts import parts  # noqa: E402
from kit.arguments import TopKInputs  # noqa: E402
from kit.topk import assert_topk  # noqa: E402
from mla_sweep import time_us  # noqa: E402

K = 512
SHAPES = [
    (64, 65_536, 65_536), (64, 65_536, 4_097 * 64), (1, 4_096, 4_096), (1, 16_384, 16_384), (1, 65_536, 65_536),
    (1, 262_144, 262_144), (64, 4_096, 4_096), (16, 16_384, 16_384), (16, 65_536, 65_536), (64, 16_384, 16_384),
    (64, 262_144, 4_097 * 64), (256, 4_096, 4_096), (256, 16_384, 16_384),
]  # fmt: skip
"""Rows, their length and the scores' width: the second and the last as a server with a context of 1,048,576 has them."""
CHANGES = [
    {}, {"select_warps": 32}, {"held_warps": 4}, {"held_warps": 16}, {"list_warps": 4}, {"list_warps": 16}, {"read_warps": 8},
    {"chunk": 64}, {"chunk": 256, "programs": 1024}, {"programs": 4096}, {"direct": 2048}, {"direct": 1024}, {"pdl": False},
]  # fmt: skip


def make_inputs(rows: int, length: int, width: int, seed: int) -> TopKInputs:
    torch.manual_seed(seed)
    pages = width // 64
    scores = torch.randn(rows, width, device="cuda")
    scores[:, length:] = -torch.inf
    return TopKInputs(
        scores=scores,
        seq_lens=torch.full((rows,), length, dtype=torch.int32, device="cuda"),
        page_table=torch.randperm(rows * pages, device="cuda").int().view(rows, pages),
        page_size=64,
        topk=K,
    )


def ours(config: TopKConfig, inputs: TopKInputs, raw: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty(inputs.scores.shape[0], K, dtype=torch.int32, device="cuda")
    _launch(config, *inputs.arguments(), out, raw)
    return out


def sglang(inputs: TopKInputs) -> Callable[[], torch.Tensor]:
    from sglang.jit_kernel.dsv4.topk import plan_topk_v2, topk_transform_512_v2

    plan = plan_topk_v2(inputs.seq_lens)
    out = torch.empty(inputs.scores.shape[0], K, dtype=torch.int32, device="cuda")

    def call() -> torch.Tensor:
        topk_transform_512_v2(inputs.scores, inputs.seq_lens, inputs.page_table, out, inputs.page_size, plan)
        return out

    return call


def torch_topk(inputs: TopKInputs) -> Callable[[], torch.Tensor]:
    return lambda: torch.topk(inputs.scores, K, dim=1, sorted=False)


def check_multiset(out: torch.Tensor, inputs: TopKInputs) -> None:
    """The peer's cache indices, turned back into scores, must be the largest K."""
    for row in range(out.shape[0]):
        back = torch.full((int(inputs.page_table.max()) + 1,), -1, dtype=torch.long, device="cuda")
        back[inputs.page_table[row].long()] = torch.arange(inputs.page_table.shape[1], device="cuda")
        index = back[out[row].long() // 64] * 64 + out[row].long() % 64
        got = inputs.scores[row, index].sort().values
        assert torch.equal(got, inputs.scores[row].topk(K).values.sort().values), f"row {row} is not the top {K}"


def attempt(name: str, check: Callable[[], None], calls: Callable[[], list]) -> str:
    """Check one variant and time it; a fault of one variant is its own cell, since the others' times are wanted."""
    try:
        check()
        return f"{name} {time_us(calls()):.1f}"
    except Exception as fault:
        return f"{name} {type(fault).__name__}: {str(fault).splitlines()[0][:100]}"


def check_ours(config: TopKConfig, inputs: TopKInputs) -> None:
    raw = torch.full((inputs.scores.shape[0], K), -777, dtype=torch.int32, device="cuda")
    assert_topk(ours(config, inputs, raw), raw, inputs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=50, help="start no variant after this long")
    parser.add_argument("--parts", action="store_true", help="each launch's own time, of the first shape's variants")
    parser.add_argument(
        "--warm", metavar="I/N", help="only compile, by launching them, every Nth variant from the Ith on"
    )
    options = parser.parse_args()
    card, _ = card_for(torch.device("cuda"))
    table = choose(card.name, K)
    start = time.monotonic()
    if options.warm:
        first, step = map(int, options.warm.split("/"))
        inputs = make_inputs(*SHAPES[0], seed=0)
        for change in CHANGES[first::step]:
            ours(replace(table, **change), inputs)
        return 0
    print(f"{torch.cuda.get_device_name()}: top {K}, us, cold L2", flush=True)
    for rows, length, width in SHAPES:
        sets = [make_inputs(rows, length, width, seed) for seed in range(4)]
        first = sets[0]
        cells = [
            attempt("SGLang v2", lambda f=first: check_multiset(sglang(f)(), f), lambda s=sets: [sglang(i) for i in s]),
            attempt("torch.topk", lambda: None, lambda s=sets: [torch_topk(i) for i in s]),
        ]
        print(f"B={rows} L={length} of {width}: {'  '.join(cells)}", flush=True)
        for change in CHANGES:
            if time.monotonic() - start > options.seconds:
                print(f"out of time before B={rows} L={length} of {width} {change}")
                break
            config = replace(table, **change)
            name = "  table" if not change else "  " + ",".join(f"{key}={value}" for key, value in change.items())
            calls = lambda s=sets, c=config: [lambda i=i: ours(c, i) for i in s]  # noqa: E731
            print(attempt(name, lambda c=config, f=first: check_ours(c, f), calls), flush=True)
            if options.parts and (rows, length, width) == SHAPES[0]:
                for kernel, times in parts(calls()[0], torch.device("cuda")).items():
                    print(f"      {sum(times) / len(times):6.1f} us  {kernel[:80]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
