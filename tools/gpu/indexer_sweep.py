"""Check, then time, variants of the indexer logits on this machine's GPU: ``python tools/gpu/indexer_sweep.py``.

A time is the median of cold CUDA-graph replays over rotating inputs, in microseconds, and is printed only for an output
that was right. DeepGEMM is checked and timed on the same inputs where it can be imported.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
from dsv4_kernels import paged_mqa_logits  # noqa: E402
from dsv4_kernels.card import card_for  # noqa: E402
from dsv4_kernels.indexer import _launch  # noqa: E402
from dsv4_kernels.indexer_table import IndexerConfig, choose  # noqa: E402
from kit.arguments import IndexerInputs  # noqa: E402
from kit.indexer import assert_logits_close  # noqa: E402
from kit.strategies_indexer import cache_view  # noqa: E402
from mla_sweep import time_us  # noqa: E402

SHAPES = [(1, 512), (1, 16_384), (16, 16_384), (64, 2_048), (64, 16_384)]
VARIANTS = [
    IndexerConfig(4096, tile, warps, stages, ctas)
    for tile, warps, stages, ctas in [
        (64, 4, 2, 4), (64, 4, 3, 4), (64, 4, 4, 4), (64, 4, 4, 6), (128, 4, 2, 3), (128, 4, 3, 2), (128, 4, 3, 3),
        (128, 4, 3, 4), (128, 4, 4, 3), (128, 8, 3, 2), (128, 8, 4, 2), (256, 8, 2, 2), (256, 8, 3, 2), (256, 8, 4, 1),
    ]
]  # fmt: skip


def make_inputs(rows: int, length: int, seed: int) -> IndexerInputs:
    """Random rows whose pages are scattered over a cache of their size."""
    torch.manual_seed(seed)
    pages_a_row = (length + 63) // 64
    pages = rows * pages_a_row + 1
    stride = 64 * 132
    buffer = torch.empty(pages, stride, dtype=torch.uint8, device="cuda")
    buffer[:, : 64 * 128] = torch.randn(pages, 64 * 128, device="cuda").to(torch.float8_e4m3fn).view(torch.uint8)
    buffer[:, 64 * 128 :] = (torch.rand(pages, 64, device="cuda") + 0.5).view(torch.uint8)
    return IndexerInputs(
        q=torch.randn(rows, 1, 64, 128, device="cuda").to(torch.float8_e4m3fn),
        kv_cache=cache_view(buffer.view(-1), pages, stride),
        weights=torch.randn(rows, 64, device="cuda"),
        seq_lens=torch.full((rows,), length, dtype=torch.int32, device="cuda"),
        page_table=(torch.randperm(pages - 1, device="cuda") + 1).int().view(rows, pages_a_row),
        max_seq_len=length,
    )


def ours(config: IndexerConfig, inputs: IndexerInputs) -> torch.Tensor:
    card, sms = card_for(inputs.q.device)
    out = torch.empty(inputs.q.shape[0], inputs.max_seq_len, device="cuda")
    cache = inputs.kv_cache
    _launch(
        card, sms, inputs.q, cache.view(torch.float8_e4m3fn), cache.view(torch.float32), inputs.weights,
        inputs.seq_lens, inputs.page_table, out, inputs.max_seq_len, config,
    )  # fmt: skip
    return out


def deep_gemm(inputs: IndexerInputs) -> Callable[[], torch.Tensor] | None:
    try:
        import deep_gemm
    except ImportError:
        return None
    lengths = inputs.seq_lens[:, None]
    plan = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, deep_gemm.get_num_sms())
    cache = inputs.kv_cache
    return lambda: deep_gemm.fp8_paged_mqa_logits(
        inputs.q, cache, inputs.weights, lengths, inputs.page_table, plan, inputs.max_seq_len, False
    )


def attempt(name: str, make: Callable[[IndexerInputs], Callable[[], torch.Tensor]], sets: list[IndexerInputs]) -> str:
    """Check one variant and time it; a fault of one variant is its own cell, since the others' times are wanted."""
    try:
        calls = [make(inputs) for inputs in sets]
        assert_logits_close(calls[0]()[:, : sets[0].max_seq_len], sets[0], clean=False)
        return f"{name} {time_us(calls):.1f}"
    except Exception as fault:
        return f"{name} {type(fault).__name__}: {str(fault).splitlines()[0][:100]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=50, help="start no variant after this long")
    parser.add_argument("--table-only", action="store_true", help="time the table's configurations alone")
    options = parser.parse_args()
    card, _ = card_for(torch.device("cuda"))
    start = time.monotonic()
    print(f"{torch.cuda.get_device_name()}: indexer logits, us, cold L2", flush=True)
    for rows, length in SHAPES:
        sets = [make_inputs(rows, length, seed) for seed in range(2)]
        cells = []
        if deep_gemm(sets[0]) is None:
            cells.append("DeepGEMM not importable")
        else:
            cells.append(attempt("DeepGEMM", deep_gemm, sets))
        table = choose(card.name, rows)
        cells.append(attempt("table", lambda inputs, config=table: lambda: ours(config, inputs), sets))

        def wide(inputs: IndexerInputs) -> Callable[[], torch.Tensor]:
            arguments = inputs.replace(max_seq_len=262_144).arguments()
            return lambda: paged_mqa_logits(*arguments)

        cells.append(attempt("max=262144", wide, sets))
        print(f"B={rows} L={length}: {'  '.join(cells)}", flush=True)
        for config in [] if options.table_only else VARIANTS:
            if time.monotonic() - start > options.seconds:
                print(f"out of time before B={rows} L={length} {config}")
                break
            name = f"  tile={config.tile} warps={config.num_warps} stages={config.num_stages} ctas={config.ctas_per_sm}"
            print(attempt(name, lambda inputs, c=config: lambda: ours(c, inputs), sets), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
