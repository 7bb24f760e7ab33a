"""Check, then time, variants of the hc pre-norm on this machine's GPU: ``python tools/gpu/hc_sweep.py``.

Beside DeepGEMM's tf32 kernel (with the scaling that SGLang adds) and fp32 torch. Times are medians of cold CUDA-graph
replays over rotating inputs, in microseconds; errors are against fp64, relative to the root of the sum of squares.
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
from dsv4_kernels.hyper_connection import _launch  # noqa: E402
from dsv4_kernels.hyper_connection_table import ANY, HcConfig, choose  # noqa: E402
from mla_sweep import time_us  # noqa: E402

WIDTH, OUTPUTS, EPS = 16_384, 24, 1e-6
TOKENS = (64, 1, 16, 512, 4096)
BOUND = 2**-16.5  # as in tests/correctness/test_hc_prenorm.py
SMALL = [
    HcConfig(ANY, block, width, splits, warps, stages)
    for block, width, splits, warps, stages in [
        (16, 128, 128, 4, 2), (16, 128, 64, 4, 3), (16, 256, 64, 4, 2), (16, 64, 128, 4, 3), (16, 128, 128, 8, 2),
        (16, 256, 32, 8, 3), (64, 64, 128, 4, 3), (64, 64, 64, 4, 4), (64, 128, 32, 4, 3), (64, 64, 16, 4, 4),
    ]
]  # fmt: skip
LARGE = [
    HcConfig(ANY, block, width, splits, warps, stages)
    for block, width, splits, warps, stages in [
        (64, 64, 1, 4, 4), (64, 64, 2, 4, 4), (64, 64, 4, 4, 4), (64, 64, 8, 4, 4), (64, 64, 16, 4, 4),
        (64, 64, 32, 4, 4),
        (64, 128, 4, 4, 3), (128, 64, 4, 4, 4), (128, 64, 4, 8, 4), (128, 64, 8, 8, 3), (32, 64, 8, 4, 4),
    ]
]  # fmt: skip
Inputs = tuple[torch.Tensor, torch.Tensor]


def ours(config: HcConfig, x: torch.Tensor, fn: torch.Tensor) -> torch.Tensor:
    mixes = torch.empty(x.shape[0], OUTPUTS, device="cuda")
    _launch(config, x, fn, EPS, mixes)
    return mixes


def deep_gemm(x: torch.Tensor, fn: torch.Tensor) -> torch.Tensor:
    from sglang.srt.layers.deep_gemm_wrapper.entrypoint import tf32_hc_prenorm_gemm

    sums = torch.empty(x.shape[0], OUTPUTS, device="cuda")
    squares = torch.empty(x.shape[0], device="cuda")
    tf32_hc_prenorm_gemm(x, fn, sums, squares, num_splits=None)
    return sums * torch.rsqrt(squares / WIDTH + EPS)[:, None]


def deep_gemm_alone(x: torch.Tensor, fn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The GEMM as SGLang calls it, in splits that its next kernel adds up (srt/layers/mhc.py): not all of the work."""
    from sglang.srt.layers.deep_gemm_wrapper.entrypoint import tf32_hc_prenorm_gemm

    splits = max(1, min(64, 132 // -(-x.shape[0] // 64)))
    sums = torch.empty(splits, x.shape[0], OUTPUTS, device="cuda")
    squares = torch.empty(splits, x.shape[0], device="cuda")
    tf32_hc_prenorm_gemm(x, fn, sums, squares, num_splits=splits)
    return sums, squares


def deep_gemm_merged(x: torch.Tensor, fn: torch.Tensor) -> torch.Tensor:
    sums, squares = deep_gemm_alone(x, fn)
    return sums.sum(0) * torch.rsqrt(squares.sum(0) / WIDTH + EPS)[:, None]


def peer_alone(sets: list[Inputs]) -> str:
    try:
        return f"DeepGEMM in splits, unmerged {time_us([lambda p=p: deep_gemm_alone(*p) for p in sets]):.1f}"
    except Exception as fault:
        return f"DeepGEMM in splits {type(fault).__name__}: {str(fault).splitlines()[0][:100]}"


def fp32_torch(x: torch.Tensor, fn: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    return torch.nn.functional.linear(wide, fn) * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)


def attempt(name: str, call: Callable[..., torch.Tensor], sets: list[Inputs], bound: float) -> str:
    """Check one variant and time it; a fault of one variant is its own cell, since the others' times are wanted."""
    try:
        x, fn = sets[0]
        exact, squares = x.double(), x.double().square()
        root = (squares.mean(-1, keepdim=True) + EPS).sqrt()
        terms = (squares @ fn.double().square().T).sqrt() / root
        error = ((call(x, fn) - exact @ fn.double().T / root).abs() / terms).max().item()
        assert error <= bound, f"error {error:.2g} above {bound:.2g}"
        return f"{name} {time_us([lambda p=p: call(*p) for p in sets]):.1f} (error {error:.1e})"
    except Exception as fault:
        return f"{name} {type(fault).__name__}: {str(fault).splitlines()[0][:100]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=50, help="start no variant after this long")
    options = parser.parse_args()
    card, _ = card_for(torch.device("cuda"))
    start = time.monotonic()
    print(f"{torch.cuda.get_device_name()}: hc pre-norm, us, cold L2", flush=True)
    for tokens in TOKENS:
        torch.manual_seed(tokens)
        sets = [
            (
                torch.randn(tokens, WIDTH, device="cuda").bfloat16(),
                torch.randn(OUTPUTS, WIDTH, device="cuda") * 0.02,
            )
            for _ in range(4)
        ]
        table = choose(card.name, tokens)
        cells = [
            attempt("DeepGEMM tf32", deep_gemm, sets, 1e-2),
            attempt("DeepGEMM in splits, merged by torch", deep_gemm_merged, sets, 1e-2),
            peer_alone(sets),
            attempt("fp32 torch", fp32_torch, sets, 1e-2),
            attempt("table", lambda x, fn, c=table: ours(c, x, fn), sets, BOUND),
        ]
        print(f"T={tokens}: {'  '.join(cells)}", flush=True)
        overlapping = [replace(config, pdl=True) for config in SMALL]
        for config in [replace(table, pdl=not table.pdl), *overlapping, *SMALL] if tokens <= 64 else LARGE:
            if time.monotonic() - start > options.seconds:
                print(f"out of time before T={tokens} {config}")
                break
            name = (
                f"  tokens={config.block_tokens} width={config.block_width} splits={config.splits} "
                f"warps={config.num_warps} stages={config.num_stages}{' pdl' * config.pdl}"
            )
            print(attempt(name, lambda x, fn, c=config: ours(c, x, fn), sets, BOUND), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
