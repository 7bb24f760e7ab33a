"""One pass of each kernel over edge shapes, for compute-sanitizer; the exit status tells.

    compute-sanitizer --tool memcheck --error-exitcode 9 python3 tools/gpu/memcheck.py
    compute-sanitizer --tool memcheck --error-exitcode 9 python3 tools/gpu/memcheck.py --plant   # must fail

Every tensor gets an allocation of its own (PyTorch's caching is off), so that a read past its end is one that the tool
sees; index lanes and page-table entries that no row may use point past the cache. ``--plant`` makes one call whose page
table leads out of the cache: a tool that passes it sees nothing here. Results are held to the oracles too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]
os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
os.environ.pop("TRITON_INTERPRET", None)

import torch  # noqa: E402
import triton  # noqa: E402
from dsv4_kernels import hc_prenorm, paged_mqa_logits, reference  # noqa: E402
from kit import strategies_hc, strategies_indexer, strategies_topk  # noqa: E402
from kit.cache import DecodeCase, Source, build  # noqa: E402
from kit.decode import assert_matches_oracles, decode, runnable_configurations  # noqa: E402
from kit.indexer import assert_logits_close, logits  # noqa: E402
from kit.strategies_hc import HcCase  # noqa: E402
from kit.strategies_indexer import IndexerCase  # noqa: E402
from kit.strategies_topk import TopKCase  # noqa: E402
from kit.topk import assert_topk, run  # noqa: E402

DEVICE = torch.device("cuda")
ALL_STRIDED = frozenset(("q", "indices", "topk_length", "extra_indices", "extra_topk_length"))

DECODE = [
    DecodeCase(1, 1, 1, Source(64, 1, 1, (1,)), sink="none"),
    DecodeCase(3, 2, 65, Source(256, 3, 129, (0, 129, 33), hole=0.1), Source(2, 69, 63, (63, -4, 1)), sink="mixed"),
    DecodeCase(33, 1, 64, Source(256, 5, 128, tuple(range(96, 129))), Source(64, 9, 513, (513,) * 33), sink="+inf"),
    DecodeCase(33, 1, 64, Source(256, 2, 40, (0,) * 33), strided=ALL_STRIDED),
    DecodeCase(1, 1, 128, Source(64, 3, 129, None), Source(2, 53, 100, None, pad_bytes=16)),
]
INDEXER = [
    IndexerCase((1,)),
    IndexerCase((0, 63, 64, 65, -4, 129, 513), spare_pages=3, table_gap=3, strided=True),
    IndexerCase(tuple(row % 131 for row in range(65)), column=True, pad_bytes=4),
    IndexerCase((4097,), max_seq_len=5000),
]
TOPK = [
    TopKCase((1, 0, -4), topk=512),
    TopKCase((511, 512, 513, 600), width=900, strided=True),
    TopKCase((4097, 9000, 0), pattern="few_values"),
    TopKCase((9001,), topk=2048, pattern="crowded"),
    TopKCase((70_000,), pattern="all_equal", page_size=2),
]
HC = [
    HcCase(tokens, width, 24, strided=tokens % 2 == 1)
    for tokens, width in ((1, 128), (17, 384), (65, 16_384), (513, 1024))
]


def check_decode(case: DecodeCase, config: object = None, splits: int = 1) -> None:
    inputs = build(case, DEVICE)
    assert_matches_oracles(decode(inputs, config, splits), inputs)


def check_indexer(case: IndexerCase) -> None:
    inputs = strategies_indexer.build(case, DEVICE)
    assert_logits_close(logits(inputs, clean=True), inputs, clean=True)


def check_topk(case: TopKCase) -> None:
    inputs = strategies_topk.build(case, DEVICE)
    assert_topk(*run(inputs), inputs)


def check_hc(case: HcCase) -> None:
    x, fn, eps = strategies_hc.build(case, DEVICE)
    torch.testing.assert_close(hc_prenorm(x, fn, eps), reference.hc_prenorm(x, fn, eps), rtol=1e-4, atol=1e-4)


def plant() -> None:
    """Read a page far outside of the cache."""
    inputs = strategies_indexer.build(IndexerCase((64,)), DEVICE)
    paged_mqa_logits(*inputs.replace(page_table=torch.full_like(inputs.page_table, 2**19)).arguments())
    torch.cuda.synchronize()


def passes() -> Iterator[tuple[str, Callable[[], None]]]:
    for case in DECODE:
        yield f"decode {case}", lambda case=case: check_decode(case)
    for config in runnable_configurations():
        for splits in (1, 7):
            yield f"decode {config} in {splits}", lambda c=config, s=splits: check_decode(DECODE[1], c, s)
    for case in INDEXER:
        yield f"indexer {case}", lambda case=case: check_indexer(case)
    for case in TOPK:
        yield f"topk {case}", lambda case=case: check_topk(case)
    for case in HC:
        yield f"hc {case}", lambda case=case: check_hc(case)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plant", action="store_true", help="make one illegal read, to see that the tool notices")
    parser.add_argument("--seconds", type=float, default=420, help="start no pass after this long; then exit with 1")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    if options.plant:
        plant()
        print("the planted illegal read went unnoticed by the program itself; see the tool's summary")
        return 0
    began, failed, left, done = time.monotonic(), 0, 0, 0
    for name, check in passes():
        if time.monotonic() - began > options.seconds:
            left += 1
            continue
        try:
            check()
            torch.cuda.synchronize()
            done += 1
        except Exception as fault:
            # After an illegal access every later call fails too: the tool's own report names the first.
            failed += 1
            print(f"FAILED {name[:200]}: {type(fault).__name__}: {str(fault).splitlines()[0][:200]}", flush=True)
    print(f"{done} passes right, {failed} failed, {left} not run for want of time, {time.monotonic() - began:.0f} s")
    return 1 if failed or left else 0


if __name__ == "__main__":
    sys.exit(main())
