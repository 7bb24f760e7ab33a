#!/usr/bin/env python3
"""Compile what SGLang compiles in the first start of a v4mini server, many kernels at once.

    python3 tools/gpu/prewarm.py [WORKERS]

A server compiles them one after the other: its own CUDA kernels (tvm-ffi, 10 s each), DeepGEMM's FP8 products (3 s) and the
hyper-connection's (TileLang, 30 s), which on an H200 took 330 s to the ready line and 160 s of warm-up after it (2026-11-30).
The caches go below $HOME, where the server looks for them (tools/gpu/in_home.sh unsets what would move them); what is not met
here the server compiles as ever. A kernel that fails is named, and the exit status is then 1. Needs SGLang 0.5.15.post1 on
PYTHONPATH and a Hopper card.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfgate.models import v4mini

CHUNK = 8192  # recipes' chunked_prefill_size: the most tokens of one prefill step
DECODE = (1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)  # captured sizes
PROMPT = 256
MHC_SHARES = 24  # there are 21 numbers of splits
SHARES = 3  # of a product's numbers of rows, so that no worker compiles all of its kernels

# Modules of sglang.jit_kernel, each with a function that builds one, and its arguments; a string is a torch dtype.
JIT: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("dsv3_router_gemm", "_jit_dsv3_router_gemm_module", (256, 4096, True, True)),
    ("dsv4.compress", "_jit_compress_module", (512, "float32", "float32", "float32", 128)),
    ("dsv4.compress", "_jit_compress_module", (512, "float32", "float32", "float32", 4)),
    ("dsv4.compress", "_jit_compress_module", (128, "float32", "float32", "float32", 4)),
    ("dsv4.compress", "_jit_compress_norm_rope_module", ("float32", 512, 64, 64, False)),
    ("dsv4.compress", "_jit_compress_norm_rope_module", ("float32", 512, 64, 2, False)),
    ("dsv4.compress", "_jit_compress_norm_rope_module", ("float32", 128, 64, 64, False)),
    ("dsv4.compress", "_jit_compress_plan_module", ()),
    ("dsv4.elementwise", "_jit_fused_rope_module", ()),
    ("dsv4.elementwise", "_jit_main_q_norm_rope_module", ("bfloat16", 512, 64)),
    ("dsv4.elementwise", "_jit_main_k_norm_rope_flashmla_module", ("bfloat16", 512, 64, 256)),
    ("dsv4.elementwise", "_jit_main_q_indexer_rope_hadamard_quant_module", ("bfloat16",)),
    ("dsv4.moe", "_jit_hash_topk_module", ()),
    ("dsv4.moe", "_jit_silu_and_mul_clamp_module", ("bfloat16",)),
    ("dsv4.topk", "_jit_topk_v1_module", (512,)),
    ("dsv4.topk", "_jit_topk_v2_module", ()),
    ("dsv4.attn", "_jit_metadata_module", ()),
    ("per_token_group_quant_8bit_v2", "_jit_module", ("bfloat16", "float8_e4m3fn", True)),
    ("clamp_position", "_jit_clamp_position_module", ("int64",)),
)


def products() -> tuple[tuple[int, int], ...]:
    """Outputs and inputs of a layer's FP8 linears (srt/models/deepseek_v4.py), fused and not."""
    config = v4mini.configuration(6)
    hidden, heads, head = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
    query, kv, expert = config["q_lora_rank"], config["kv_lora_rank"], config["moe_intermediate_size"]
    indexer = config["index_n_heads"] * config["index_head_dim"]
    output = config["o_groups"] * config["o_lora_rank"]
    attention = (
        (query + kv, hidden),
        (query, hidden),
        (kv, hidden),
        (heads * head, query),
        (indexer, query),
        (hidden, output),
    )
    return (*attention, (2 * expert, hidden), (hidden, expert))


def row_counts() -> list[int]:
    """Tokens of the steps that the recipes take: captured decodes, and prefills of one prompt and of several."""
    lengths = [length for step in (64, 512) for length in range(3 * 64, CHUNK + 1, step)]
    return sorted({*DECODE, *lengths, *range(PROMPT, CHUNK + 1, PROMPT)})


def jobs() -> Iterator[tuple[Any, ...]]:
    """What a worker is given, the longest first."""
    for share in range(MHC_SHARES):
        yield "mhc", share, MHC_SHARES
    for index in range(len(JIT)):
        yield "jit", index
    for outputs, inputs in products():
        for share in range(SHARES):
            yield "product", outputs, inputs, share


def compile_jit(index: int) -> str:
    """One of SGLang's own CUDA kernels."""
    import torch

    name, function, given = JIT[index]
    arguments = [getattr(torch, one) if isinstance(one, str) else one for one in given]
    getattr(importlib.import_module(f"sglang.jit_kernel.{name}"), function)(*arguments)
    return f"{function} {given}"


def compile_product(outputs: int, inputs: int, share: int) -> str:
    """DeepGEMM's kernels of one FP8 linear, for a share of the numbers of rows."""
    import torch
    from sglang.srt.layers.deep_gemm_wrapper import entrypoint

    weight = torch.zeros(outputs, inputs, device="cuda").to(torch.float8_e4m3fn)
    scales = torch.ones(-(-outputs // 128), inputs // 128, device="cuda")
    for rows in row_counts()[share::SHARES]:
        values = torch.zeros(rows, inputs, device="cuda").to(torch.float8_e4m3fn)
        # Column-major, padded to 16 bytes a column, as the copy engine wants it.
        padded = torch.ones(inputs // 128, -(-rows // 4) * 4, device="cuda")
        out = torch.empty(rows, outputs, dtype=torch.bfloat16, device="cuda")
        entrypoint.gemm_nt_f8f8bf16((values, padded.t()[:rows]), (weight, scales), out)
    torch.cuda.synchronize()
    return f"FP8 product {outputs}x{inputs}, share {share + 1} of {SHARES}"


def compile_mhc(share: int, shares: int) -> str:
    """The hyper-connection's kernels for a share of the numbers of splits, on which alone they depend."""
    import torch
    from sglang.srt.layers import mhc

    config = v4mini.configuration(6)
    streams, width, eps = config["hc_mult"], config["hidden_size"], config["hc_eps"]
    counts = mhc.get_mhc_pre_token_count_representatives(CHUNK, streams * width)[share::shares]
    outputs = streams * 2 + streams * streams
    fn = torch.zeros(outputs, streams * width, device="cuda")
    scale, base = torch.zeros(3, device="cuda"), torch.zeros(outputs, device="cuda")
    norm = torch.ones(width, dtype=torch.bfloat16, device="cuda")
    for tokens in counts:
        with torch.inference_mode():
            mhc.mhc_pre(
                torch.zeros(tokens, streams, width, dtype=torch.bfloat16, device="cuda"), fn, scale, base,
                config["rms_norm_eps"], eps, eps, 2.0, config["hc_sinkhorn_iters"], 1, 32,
                norm_weight=norm, norm_eps=config["rms_norm_eps"],
            )  # fmt: skip
    torch.cuda.synchronize()
    return f"hyper-connection of {', '.join(map(str, counts)) or 'no'} tokens"


COMPILE = {"jit": compile_jit, "product": compile_product, "mhc": compile_mhc}


def run(job: tuple[Any, ...]) -> tuple[str, float, str]:
    """Do a job in a worker: what it was, its seconds, and what went wrong ("" for nothing)."""
    began = time.monotonic()
    try:
        name = COMPILE[job[0]](*job[1:])
    except Exception as error:  # one kernel's failure must not cost the others
        return str(job), time.monotonic() - began, f"{type(error).__name__}: {error}"
    return name, time.monotonic() - began, ""


def main(workers: int) -> int:
    os.environ.setdefault("SGLANG_JIT_DEEPGEMM_PRECOMPILE", "0")
    began, failed = time.monotonic(), 0
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run, job) for job in jobs()]):
            name, seconds, error = done.result()
            failed += bool(error)
            print(f"{time.monotonic() - began:5.0f} s: {name}: {error or f'{seconds:.1f} s'}"[:300], flush=True)
    print(f"{failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    if len(sys.argv) > 2 or not all(given.isdigit() for given in sys.argv[1:]):
        raise SystemExit(__doc__)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) == 2 else os.cpu_count() or 1))
