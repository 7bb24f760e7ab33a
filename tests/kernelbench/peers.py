"""The kernels a user would otherwise run, each as a call on the same inputs; what is not installed is named, not timed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from kernelbench.checks import (
    Check,
    check_decode,
    check_hc,
    check_indexer,
    check_peer_decode,
    check_peer_hc,
    check_peer_indexer,
    check_peer_topk,
    check_split_hc,
    check_topk,
    check_topk_values,
    held_to,
    specified,
)
from kernelbench.inputs import DecodeInputs, HcInputs, IndexerInputs, TopKInputs
from kernelbench.modules import function_of, module_file

from perfgate.kernelbench.bars import OURS, OURS_SPLIT
from perfgate.kernelbench.shapes import HC_OUTPUTS, HC_WIDTH, DecodeShape, HcShape, IndexerShape, Shape, TopKShape
from perfgate.kernelbench.timing import Call

FLASH_MLA_HEADS = (64, 128)
HOPPER_SMS = 132


@dataclass(frozen=True)
class Implementation:
    """One column: how to make a call from inputs, and how its output is checked.

    ``needs`` are modules without which it is not timed; ``make`` runs once for each set of inputs, outside of the
    timed window (plans and metadata of a peer are made there).
    """

    name: str
    make: Callable[[Any], Call]
    check: Check
    needs: tuple[str, ...] = ()
    label: str = ""

    @property
    def held_to(self) -> str:
        """What its output is held to, in words."""
        return held_to(self.check)


def _decode_ours(inputs: DecodeInputs) -> Call:
    from dsv4_kernels import sparse_mla_decode

    return lambda: sparse_mla_decode(*inputs.arguments())


def _flash_mla(inputs: DecodeInputs) -> Call:
    """FlashMLA takes 64 or 128 heads: fewer are padded beforehand, and the padding is not in the time."""
    from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata

    heads = inputs.q.shape[2]
    padded = next(count for count in FLASH_MLA_HEADS if heads <= count)
    q = torch.nn.functional.pad(inputs.q, (0, 0, 0, padded - heads)).contiguous()
    sink = torch.nn.functional.pad(inputs.attn_sink, (0, padded - heads)).contiguous()
    metadata = get_mla_metadata()[0]
    fp8 = torch.float8_e4m3fn
    extra = {}
    if inputs.extra_k_cache is not None:
        extra = {
            "extra_k_cache": inputs.extra_k_cache.view(fp8),
            "extra_indices_in_kvcache": inputs.extra_indices,
            "extra_topk_length": inputs.extra_topk_length,
        }
    return lambda: flash_mla_with_kvcache(
        q=q, k_cache=inputs.k_cache.view(fp8), block_table=None, cache_seqlens=None, head_dim_v=512,
        tile_scheduler_metadata=metadata, softmax_scale=inputs.softmax_scale, is_fp8_kvcache=True,
        indices=inputs.indices, topk_length=inputs.topk_length, attn_sink=sink, **extra,
    )[:2]  # fmt: skip


def _sglang_triton(inputs: DecodeInputs) -> Call:
    module = module_file("sglang", "srt/layers/attention/flash_mla_sm120_triton.py")
    return lambda: module.flash_mla_sparse_decode_triton(*_fp8_caches(inputs).arguments())


def _sglang_torch(inputs: DecodeInputs) -> Call:
    module = importlib.import_module("sglang.srt.layers.attention.flash_mla_sm120")
    return lambda: module._sm120_sparse_decode_fwd(*_fp8_caches(inputs).arguments())


def _fp8_caches(inputs: DecodeInputs) -> DecodeInputs:
    fp8 = torch.float8_e4m3fn
    extra = inputs.extra_k_cache
    caches = {"k_cache": inputs.k_cache.view(fp8), "extra_k_cache": None if extra is None else extra.view(fp8)}
    return replace(inputs, **caches)


def _indexer_ours(inputs: IndexerInputs) -> Call:
    from dsv4_kernels import paged_mqa_logits

    return lambda: paged_mqa_logits(*inputs.arguments())


def _deep_gemm_logits(inputs: IndexerInputs) -> Call:
    import deep_gemm

    lengths = inputs.seq_lens[:, None]
    plan = deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, deep_gemm.get_num_sms())
    return lambda: deep_gemm.fp8_paged_mqa_logits(
        inputs.q, inputs.kv_cache, inputs.weights, lengths, inputs.page_table, plan, inputs.max_seq_len, False
    )


FALLBACKS = "srt/layers/attention/dsv4/indexer.py"


def fallback(name: str) -> Callable[..., Any]:
    """A torch function of SGLang's indexer, by its source alone.

    The file's own imports bring the whole server, and with FlashInfer 0.6.12 ``cuda.tile``, which a Hopper host need not have;
    these functions use torch, its fp8 type and a cache of their own.
    """
    # AMD's cards have another fp8 type, which the file asks for; NVIDIA's have this one.
    known = {"torch": torch, "F": torch.nn.functional, "FP8_DTYPE": torch.float8_e4m3fn, "_arange_cache": {}}
    return function_of("sglang", FALLBACKS, name, known)


def _sglang_torch_logits(inputs: IndexerInputs) -> Call:
    score = fallback("fp8_paged_mqa_logits_torch_sm120")
    arguments = inputs.arguments()
    return lambda: score(*arguments[:5], None, inputs.max_seq_len, False)


def _topk_ours(inputs: TopKInputs) -> Call:
    from dsv4_kernels import topk_transform

    return lambda: topk_transform(*inputs.arguments())


def _sglang_topk_v2(inputs: TopKInputs) -> Call:
    module = importlib.import_module("sglang.jit_kernel.dsv4.topk")
    plan = module.plan_topk_v2(inputs.seq_lens)
    out = torch.empty(len(inputs.seq_lens), inputs.topk, dtype=torch.int32, device=inputs.scores.device)

    def call() -> torch.Tensor:
        module.topk_transform_512_v2(inputs.scores, inputs.seq_lens, inputs.page_table, out, inputs.page_size, plan)
        return out

    return call


def _sglang_torch_topk(inputs: TopKInputs) -> Call:
    select = fallback("topk_transform_512_pytorch_vectorized")
    out = torch.empty(len(inputs.seq_lens), inputs.topk, dtype=torch.int32, device=inputs.scores.device)

    def call() -> torch.Tensor:
        select(inputs.scores, inputs.seq_lens, inputs.page_table, out, inputs.page_size)
        return out

    return call


def _torch_topk(inputs: TopKInputs) -> Call:
    scores = specified(inputs)
    return lambda: torch.topk(scores, inputs.topk, dim=1, sorted=False)


def _hc_ours(inputs: HcInputs) -> Call:
    from dsv4_kernels import hc_prenorm

    return lambda: hc_prenorm(*inputs.arguments())


def _hc_ours_split(inputs: HcInputs) -> Call:
    """The partial sums alone, as the launch makes them before its merge."""
    from dsv4_kernels.card import card_for
    from dsv4_kernels.hyper_connection import LANES, partial_sums
    from dsv4_kernels.hyper_connection_table import choose

    config = choose(card_for(inputs.x.device)[0].table, len(inputs.x))
    tokens, device = len(inputs.x), inputs.x.device

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        sums = torch.empty(config.splits, tokens, LANES, device=device)
        partial_sums(config, inputs.x, inputs.fn, inputs.eps, sums, sums)
        return sums[:, :, :HC_OUTPUTS], sums[:, :, LANES - 1]

    return call


def _deep_gemm_hc(inputs: HcInputs) -> Call:
    """As SGLang calls it unsplit (deepseek_v4.py): the sums, then the scaling in torch."""
    import deep_gemm

    tokens, device = len(inputs.x), inputs.x.device

    def call() -> torch.Tensor:
        sums = torch.empty(tokens, HC_OUTPUTS, device=device)
        squares = torch.empty(tokens, device=device)
        deep_gemm.tf32_hc_prenorm_gemm(inputs.x, inputs.fn, sums, squares, num_splits=None)
        return sums * torch.rsqrt(squares / HC_WIDTH + inputs.eps)[:, None]

    return call


def _deep_gemm_hc_split(inputs: HcInputs) -> Call:
    """As SGLang calls it split (mhc.py): partial sums alone, whose merge and scaling a later kernel does."""
    import deep_gemm

    tokens, device = len(inputs.x), inputs.x.device
    splits = max(1, min(64, HOPPER_SMS // -(-tokens // 64)))

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        sums = torch.empty(splits, tokens, HC_OUTPUTS, device=device)
        squares = torch.empty(splits, tokens, device=device)
        deep_gemm.tf32_hc_prenorm_gemm(inputs.x, inputs.fn, sums, squares, num_splits=splits)
        return sums, squares

    return call


def _deep_gemm_hc_merged(inputs: HcInputs) -> Call:
    """Split, and its partial sums merged and scaled by torch: all of the work, where SGLang's next kernel is not at hand."""
    split = _deep_gemm_hc_split(inputs)

    def call() -> torch.Tensor:
        sums, squares = split()
        return sums.sum(0) * torch.rsqrt(squares.sum(0) / HC_WIDTH + inputs.eps)[:, None]

    return call


def _torch_hc(inputs: HcInputs) -> Call:
    def call() -> torch.Tensor:
        wide = inputs.x.float()
        mixes = torch.nn.functional.linear(wide, inputs.fn)
        return mixes * torch.rsqrt(wide.square().mean(-1, keepdim=True) + inputs.eps)

    return call


SGLANG_DECODE = ("sglang", "sglang.srt.layers.attention.flash_mla_sm120")
SGLANG_TOPK = ("sglang", "sglang.jit_kernel.dsv4.topk")
DECODE = (
    Implementation(OURS, _decode_ours, check_decode),
    Implementation("FlashMLA", _flash_mla, check_peer_decode, ("sgl_kernel",)),
    Implementation("SGLang Triton", _sglang_triton, check_peer_decode, ("sglang",)),
    Implementation("SGLang torch", _sglang_torch, check_peer_decode, SGLANG_DECODE),
)
INDEXER = (
    Implementation(OURS, _indexer_ours, check_indexer),
    Implementation("DeepGEMM", _deep_gemm_logits, check_peer_indexer, ("deep_gemm",)),
    Implementation("SGLang torch", _sglang_torch_logits, check_peer_indexer, ("sglang",)),
)
TOPK = (
    Implementation(OURS, _topk_ours, check_topk),
    Implementation("SGLang v2", _sglang_topk_v2, check_peer_topk, SGLANG_TOPK),
    Implementation("SGLang torch", _sglang_torch_topk, check_peer_topk, ("sglang",)),
    Implementation("torch.topk", _torch_topk, check_topk_values),
)
HC = (
    Implementation(OURS, _hc_ours, check_hc),
    Implementation(OURS_SPLIT, _hc_ours_split, check_split_hc),
    Implementation("DeepGEMM", _deep_gemm_hc, check_peer_hc, ("deep_gemm",)),
    Implementation("DeepGEMM split", _deep_gemm_hc_split, check_split_hc, ("deep_gemm",), "DeepGEMM split, no merge"),
    Implementation(
        "DeepGEMM merged", _deep_gemm_hc_merged, check_peer_hc, ("deep_gemm",), "DeepGEMM split, torch merge"
    ),
    Implementation("torch fp32", _torch_hc, check_peer_hc),
)


def implementations(shape: Shape) -> tuple[Implementation, ...]:
    """Ours and every peer that takes the shape, installed or not."""
    if isinstance(shape, DecodeShape):
        if shape.heads in FLASH_MLA_HEADS:
            return DECODE
        padded = f"FlashMLA padded to {next(c for c in FLASH_MLA_HEADS if shape.heads <= c)} heads"
        return tuple(replace(one, label=padded) if one.name == "FlashMLA" else one for one in DECODE)
    kinds: dict[type, tuple[Implementation, ...]] = {IndexerShape: INDEXER, TopKShape: TOPK, HcShape: HC}
    return kinds[type(shape)]


@functools.cache
def absent(module: str) -> str:
    """Why a module cannot be used here, or nothing. A whole package is only looked up; what lies below is imported."""
    try:
        if "." in module:
            importlib.import_module(module)
        elif importlib.util.find_spec(module) is None:
            return f"{module} is not installed"
    except Exception as fault:
        # A package that is there and cannot be imported is absent too, for a reason that has to be shown.
        return f"{module} cannot be imported: {type(fault).__name__}: {(str(fault).splitlines() or [''])[0][:120]}"
    return ""


def missing(one: Implementation) -> str:
    """Why an implementation is not timed here, or nothing."""
    return next((reason for name in one.needs if (reason := absent(name))), "")
