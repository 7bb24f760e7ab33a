"""Environment variables that change a server's speed: what is recorded of them, and which of them no gate may pass (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.recipe import Recipe
from perfgate.redact import redact

_PREFIXES = ("SGLANG_", "SGL_", "DSV4_", "FLASHINFER_", "TRITON_", "TORCH", "PYTORCH_", "CUDA_", "NCCL_", "DG_")
_NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "GLIBC_TUNABLES", "LD_PRELOAD", "MALLOC_ARENA_MAX")
_ELSEWHERE = (
    "CUDA_VISIBLE_DEVICES",
    "DSV4_COUNTS_FILE",
    "SGLANG_LOGGING_CONFIG_PATH",
    "TRITON_PRINT_AUTOTUNING",
    "TRITON_CACHE_AUTOTUNING",
)
"""Which GPUs are used is in the fingerprint's hardware; the others say nothing about speed: that an autotuner's choice is
kept from start to start does not say which of the same configurations it is."""

FALLBACKS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": ("indexer", ()),
    "SGLANG_TOPK_TRANSFORM_512_TORCH": ("topk", ()),
    "SGLANG_SM120_FLASHMLA_BACKEND": ("sparse_mla", ("triton", "torch")),
}
"""SGLang's switches (srt/environ.py) that send a kernel through a slower general one: the patch that stands in the same
place, and the values that do so (none listed: any true one)."""

SLOWING: Mapping[str, str] = {
    "CUDA_LAUNCH_BLOCKING": "every kernel launch waits for the one before it",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "every allocation goes to the driver",
    "TRITON_INTERPRET": "Triton's kernels run on the CPU",
    "NCCL_P2P_DISABLE": "GPUs talk through host memory",
}
"""Debugging switches of torch, Triton and NCCL under which no speed means anything."""


def relevant(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a result depends on, redacted, by name; those that hold a path are left out."""
    kept = {
        name: value
        for name, value in sorted(environ.items())
        if (name.startswith(_PREFIXES) or name in _NAMES)
        and name not in _ELSEWHERE
        and value
        and not value.startswith(("/", "~", "./"))
    }
    return {name: str(value) for name, value in redact(kept).items()}


def spoilt(recipe: Recipe, environ: Mapping[str, str]) -> list[str]:
    """Why a server with this environment does not run what its recipe claims; empty where nothing speaks against it.

    A fallback is no fault where the recipe says so: by ``patch.fallback``, or by a patch in the same place.
    """
    declared = {*recipe.patch.patches, *(name.removeprefix("fallback_") for name in recipe.patch.fallback)}
    found = [
        f"{name}={environ[name]} sends the {patch} through a fallback that the recipe does not declare (patch.fallback)"
        for name, (patch, values) in FALLBACKS.items()
        if patch not in declared and _on(environ.get(name, ""), values)
    ]
    return found + [f"{name}={environ[name]}: {why}" for name, why in SLOWING.items() if _on(environ.get(name, ""), ())]


def _on(value: str, values: tuple[str, ...]) -> bool:
    text = value.strip().lower()
    return text in values if values else text not in ("", "0", "false", "no", "off", "n", "f")
