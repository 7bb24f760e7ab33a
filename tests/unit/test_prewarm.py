"""What is compiled ahead of a GPU server's first start, held to SGLang as it is installed; nothing is compiled here."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "gpu"))

import prewarm

# As an H200's cache named them after a start (2026-11-30, SGLang 0.5.15.post1), without the hashes of their sources.
SEEN = {
    "clamp_position_int64_t",
    "dpsk_v4_compress_128_v2_512_fp32_t_fp32_t_fp32_t_true",
    "dpsk_v4_compress_4_v2_128_fp32_t_fp32_t_fp32_t_true",
    "dpsk_v4_compress_4_v2_512_fp32_t_fp32_t_fp32_t_true",
    "dpsk_v4_compress_plan",
    "dpsk_v4_fused_norm_rope_v2_fp32_t_128_64_64_true_false",
    "dpsk_v4_fused_norm_rope_v2_fp32_t_512_64_2_true_false",
    "dpsk_v4_fused_norm_rope_v2_fp32_t_512_64_64_true_false",
    "dpsk_v4_fused_rope_true",
    "dpsk_v4_hash_topk_act_sqrt_softplus_true",
    "dpsk_v4_main_k_norm_rope_flashmla_bf16_t_512_64_256_true",
    "dpsk_v4_main_q_indexer_rope_hadamard_quant_bf16_t_true",
    "dpsk_v4_main_q_norm_rope_bf16_t_512_64_true",
    "dpsk_v4_metadata",
    "dpsk_v4_silu_and_mul_clamp_bf16_t_true",
    "dpsk_v4_topk_v1_512_true",
    "dpsk_v4_topk_v2",
    "dsv3_router_gemm_256_4096_true_true",
    "per_token_group_quant_8bit_v2_bf16_t_fp8_e4m3_t_true",
}


def test_the_jit_kernels_are_those_that_a_start_was_seen_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for index, (name, function, _) in enumerate(prewarm.JIT):
        module = importlib.import_module(f"sglang.jit_kernel.{name}")
        monkeypatch.setattr(module, "load_jit", lambda *given, **rest: names.append("_".join(map(str, given))))
        if hasattr(module, "is_arch_support_pdl"):
            monkeypatch.setattr(module, "is_arch_support_pdl", lambda: True)
        built: Any = getattr(module, function)
        built.cache_clear() if hasattr(built, "cache_clear") else None
        prewarm.compile_jit(index)
    assert sorted(names) == sorted(SEEN)


def test_every_number_of_rows_of_every_product_is_somebodys() -> None:
    asked = [job for job in prewarm.jobs() if job[0] == "product"]
    for product in prewarm.products():
        shares = sorted(job[3] for job in asked if job[1:3] == product)
        rows = sorted(m for share in shares for m in prewarm.row_counts()[share :: prewarm.SHARES])
        assert rows == prewarm.row_counts()
    assert {1, 64, 256, 31 * 256, prewarm.CHUNK} <= set(prewarm.row_counts())


def test_a_kernel_that_fails_is_named_and_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(index: int) -> str:
        raise RuntimeError("no such card")

    monkeypatch.setitem(prewarm.COMPILE, "jit", broken)
    name, _, error = prewarm.run(("jit", 3))
    assert (name, error) == ("('jit', 3)", "RuntimeError: no such card")
