"""Our decode and indexer beside FlashMLA and DeepGEMM on the same inputs: ``python3 tools/gpu/peers_check.py``.

Three results a case, compared in pairs (ours with the fp32 oracle, the peer with it, ours with the peer), each pair
within the test suite's bounds. Needs torch, triton, this repository and the peers (``sgl_kernel``, ``deep_gemm``). The
exit status is 1 if a pair differs, a case could not run or a peer is missing.

Inputs are the suite's generators' with two changes that the peers need, and that all three results share: memory that
nothing refers to holds zeros instead of NaN (the peers read whole pages and tiles of it), and dead index lanes and
page-table entries hold -1 and 0 instead of numbers past the cache.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
import triton  # noqa: E402
from dsv4_kernels import paged_mqa_logits, reference, sparse_mla_decode  # noqa: E402
from kit.arguments import IndexerInputs  # noqa: E402
from kit.cache import DecodeCase, DecodeInputs, Source, build  # noqa: E402
from kit.compare import OUTPUT_ROUNDING, assert_decode_close, cosine_difference  # noqa: E402
from kit.indexer import assert_rows_close, bounds, magnitudes, row_lengths  # noqa: E402
from kit.rounding import rounding_of  # noqa: E402
from kit.strategies_indexer import GARBAGE_PAGE, IndexerCase  # noqa: E402
from kit.strategies_indexer import build as build_indexer  # noqa: E402

Result = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Table:
    """Prints a row a pair, and remembers whether all were within the bounds."""

    failed: int = 0

    def row(self, kernel: str, case: str, pair: str, worst: str, judge: Callable[[], None]) -> None:
        try:
            judge()
            verdict = "agree"
        except AssertionError as fault:
            self.failed += 1
            verdict = "DIFFER: " + str(fault).splitlines()[0][:160]
        print(f"{kernel:8} {case:42} {pair:16} {worst:34} {verdict}", flush=True)

    def fault(self, kernel: str, case: str, fault: BaseException) -> None:
        self.failed += 1
        print(f"{kernel:8} {case:42} could not run: {type(fault).__name__}: {str(fault)[:300]}", flush=True)


def decode_cases() -> list[tuple[str, DecodeCase]]:
    """Both peers' head counts; lengths of every kind; holes, repeats and sinks; main and extra caches."""
    cases = []
    for heads in (64, 128):
        for batch, extra_lanes, page, sink in (
            (1, 512, 64, "normal"), (3, 512, 64, "zero"), (16, 512, 64, "none"), (65, 512, 64, "normal"),
            (4, 1024, 2, "mixed"), (4, None, 0, "normal"),
        ):  # fmt: skip
            window = tuple((128, 127, 1, 65)[row % 4] for row in range(batch))
            extra = None
            if extra_lanes is not None:
                lengths = tuple((extra_lanes, 1, 0, extra_lanes // 2 + 1)[row % 4] for row in range(batch))
                pages = max(8, 2 * extra_lanes // page)
                extra = Source(page, pages, extra_lanes, lengths, hole=0.1, repeat=0.1)
            case = DecodeCase(batch, 1, heads, Source(256, 5, 128, window), extra, sink=sink, poison=0, seed=batch)
            cases.append((f"H={heads} B={batch} 128+{extra_lanes or 0} page {page or '-'} sink {sink}", case))
    return cases


def tame(case: DecodeCase, inputs: DecodeInputs) -> DecodeInputs:
    """The same call with -1 in the lanes past each length."""

    def clean(indices: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        if lengths is None:
            return indices
        dead = torch.arange(indices.shape[2], device=indices.device) >= lengths[:, None, None]
        return indices.masked_fill(dead, -1).contiguous()

    inputs = inputs.replace(indices=clean(inputs.indices, inputs.topk_length))
    if case.extra is None:
        return inputs
    return inputs.replace(extra_indices=clean(inputs.extra_indices, inputs.extra_topk_length))


def flash_mla_result(inputs: DecodeInputs) -> Result:
    from mla_sweep import flash_mla

    call = flash_mla(inputs)
    if call is None:
        raise RuntimeError("FlashMLA is not installed, or does not take these heads")
    out, lse = call()[:2]
    batch, queries, heads, _ = inputs.q.shape
    return out.view(batch, queries, heads, 512), lse.view(batch, heads, queries).float()


def check_decode(table: Table, device: torch.device) -> None:
    for name, case in decode_cases():
        try:
            inputs = tame(case, build(case, device))
            exact = reference.sparse_mla_decode(*inputs.arguments())
            ours = sparse_mla_decode(*inputs.arguments())
            torch.cuda.synchronize()
            results = {"ours": ours}
            results["FlashMLA"] = flash_mla_result(inputs)
            torch.cuda.synchronize()
        except Exception as fault:
            # The other cases are wanted, whatever becomes of this one.
            table.fault("decode", name, fault)
            continue
        empty = exact[1] == -torch.inf
        out, lse = results["FlashMLA"]
        # FlashMLA marks a row without tokens by an lse of +inf, this project by -inf: the value of an empty sum.
        results["FlashMLA"] = (out, torch.where(empty & (lse == torch.inf), -torch.inf, lse))
        rounding = rounding_of(inputs)
        # FlashMLA divides by the sum of the weights before they are rounded: one more rounding of the output.
        for pair, a, b, *limits in (
            ("ours/fp32", results["ours"], exact, rounding),
            ("FlashMLA/fp32", results["FlashMLA"], exact, rounding, 2 * OUTPUT_ROUNDING),
            ("ours/FlashMLA", results["ours"], results["FlashMLA"], rounding.of_two(), 2 * OUTPUT_ROUNDING),
        ):
            lse_error = (a[1] - b[1])[~empty].abs()
            worst = f"cosine {cosine_difference(a[0], b[0]).max().item():.1e}"
            worst += f", lse {lse_error.max().item() if lse_error.numel() else 0.0:.1e}"
            table.row("decode", name, pair, worst, lambda a=a, b=b, m=limits: assert_decode_close(a, b, *m))


def indexer_cases() -> list[tuple[str, IndexerCase]]:
    edges = (1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513)
    return [
        ("B=1 L=1", IndexerCase((1,), column=True)),
        ("B=1 L=16384", IndexerCase((16_384,), column=True, seed=1)),
        ("B=15 around pages and k", IndexerCase(edges, column=True, seed=2)),
        ("B=15, table twice as wide", IndexerCase(edges, spare_pages=9, column=True, seed=3)),
        ("B=65 L=1..2048", IndexerCase(tuple(1 + 32 * row % 2048 for row in range(65)), column=True, seed=4)),
        ("B=4 with rows of 0", IndexerCase((0, 700, 0, 64), column=True, seed=5)),
        ("B=3 scales 2**-6..2**6", IndexerCase((700, 64, 5000), spread=6, column=True, seed=6)),
    ]


def deep_gemm_result(inputs: IndexerInputs) -> torch.Tensor:
    import deep_gemm

    plan = deep_gemm.get_paged_mqa_logits_metadata(inputs.seq_lens, 64, deep_gemm.get_num_sms())
    logits = deep_gemm.fp8_paged_mqa_logits(
        inputs.q, inputs.kv_cache, inputs.weights, inputs.seq_lens, inputs.page_table, plan, inputs.max_seq_len,
        clean_logits=False,
    )  # fmt: skip
    return logits[:, : inputs.max_seq_len]


def check_indexer(table: Table, device: torch.device) -> None:
    for name, case in indexer_cases():
        try:
            inputs = build_indexer(IndexerCase(**{**vars(case), "poison": 0}), device)
            pages = inputs.page_table
            inputs = inputs.replace(page_table=torch.where(pages == GARBAGE_PAGE, 0, pages).int().contiguous())
            exact = reference.paged_mqa_logits(*inputs.arguments())
            ours = paged_mqa_logits(*inputs.arguments())
            torch.cuda.synchronize()
            peer = deep_gemm_result(inputs)
            torch.cuda.synchronize()
        except Exception as fault:
            table.fault("indexer", name, fault)
            continue
        lengths, scale, bound = row_lengths(inputs), magnitudes(inputs), bounds(inputs)
        for pair, a, b in (("ours/fp32", ours, exact), ("DeepGEMM/fp32", peer, exact), ("ours/DeepGEMM", ours, peer)):
            shares = [
                ((a[row, :n] - b[row, :n]).abs() / scale[row, :n]).max().item() for row, n in enumerate(lengths) if n
            ]
            worst = f"{max(shares, default=0.0):.1e} of sum |w||q||k|s"
            table.row("indexer", name, pair, worst, lambda a=a, b=b, m=bound, n=lengths: assert_rows_close(a, b, m, n))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("decode", "indexer"), help="one of the two kernels")
    options = parser.parse_args()
    device = torch.device("cuda")
    began = time.monotonic()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    print(f"{'kernel':8} {'case':42} {'pair':16} {'worst':34} verdict")
    table = Table()
    if options.only != "indexer":
        check_decode(table, device)
    if options.only != "decode":
        check_indexer(table, device)
    print(f"{table.failed} pairs or cases failed, {time.monotonic() - began:.0f} s")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())
