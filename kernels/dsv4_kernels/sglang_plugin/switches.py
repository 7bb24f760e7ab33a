"""SGLang's own switches that decide whether a seam is reached. Values come from SGLang, which sets some by the card."""

from __future__ import annotations

from collections.abc import Callable

from dsv4_kernels.sglang_plugin.seams import Seam
from dsv4_kernels.sglang_plugin.settings import PluginError

Switch = Callable[[str], bool | str]
"""Reads one of SGLang's settings by name, as ``sglang.srt.environ.envs`` resolves it."""


def reached(seam: Seam, switch: Switch) -> bool:
    """True where SGLang's switches lead to this seam."""
    return all(switch(name) is wanted for name, wanted in seam.when)


def conflicts(patch: str, arch: str, switch: Switch) -> str:
    """Why SGLang would go round ``patch`` with its switches as they are, and what to set; empty where it would not."""
    if patch == "topk" and switch("SGLANG_TOPK_TRANSFORM_512_TORCH"):
        return "SGLANG_TOPK_TRANSFORM_512_TORCH=1 sends the top-k through torch, round the patch; unset it"
    if patch == "hc_prenorm" and _post_and_pre_are_fused(arch, switch):
        return (
            "SGLANG_OPT_FUSE_MHC_POST_PRE is on (the default from 0.5.18), so that all layers but the first go "
            "through mhc_fused_post_pre and not through hc_pre; set SGLANG_OPT_FUSE_MHC_POST_PRE=0"
        )
    if patch == "fallback_sparse_mla" and switch("SGLANG_SM120_FLASHMLA_BACKEND") not in ("triton", "torch"):
        return (
            "the sm_120 decode would call FlashInfer, which is not built for this card; set "
            "SGLANG_SM120_FLASHMLA_BACKEND=triton"
        )
    if patch == "fallback_indexer" and not switch("SGLANG_FP8_PAGED_MQA_LOGITS_TORCH"):
        return "it routes the torch indexer, which is off; set SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=1"
    if patch in ("fallback_indexer",) and switch("SGLANG_OPT_USE_TILELANG_INDEXER"):
        return "SGLANG_OPT_USE_TILELANG_INDEXER=1 goes ahead of the torch indexer; set it to 0"
    return ""


def refuse_conflicts(patches: tuple[str, ...], arch: str, switch: Switch) -> None:
    """Raise PluginError naming every patch that SGLang would go round."""
    found = [f"{patch}: {why}" for patch in patches if (why := conflicts(patch, arch, switch))]
    if found:
        raise PluginError("patches that would not be reached: " + "; ".join(found))


def _post_and_pre_are_fused(arch: str, switch: Switch) -> bool:
    """The rule of deepseek_v4_fused_mhc.py:66 (0.5.23); 0.5.15.post1 has the same without the sm_120 clause."""
    return bool(
        switch("SGLANG_OPT_FUSE_MHC_POST_PRE")
        and switch("SGLANG_OPT_USE_TILELANG_MHC_POST")
        and (switch("SGLANG_OPT_USE_TILELANG_MHC_PRE") or arch == "sm_120")
    )
