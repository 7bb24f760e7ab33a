"""Every place where SGLang is patched, as data. No SGLang module is imported here.

Each row was read from the wheels of the first and the last version (and checked by name and signature in those
between); file and line stand in the reason, for 0.5.15.post1 before the semicolon and for 0.5.23 after it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from packaging.version import Version

from dsv4_kernels.sglang_plugin.settings import CPU

FIRST_VERSION = Version("0.5.15.post1")
LAST_VERSION = Version("0.5.23")


@dataclass(frozen=True)
class Releases:
    """SGLang's releases from ``first`` to ``last``, both included.

    Compared by base version: 0.5.22.post1, its release candidates and a local build of it are where 0.5.22 is.
    """

    first: str
    last: str

    def __contains__(self, version: object) -> bool:
        return _base(self.first) <= _base(str(version)) <= _base(self.last)

    def __str__(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


def _base(version: str) -> Version:
    return Version(Version(version).base_version)


@dataclass(frozen=True)
class Seam:
    """One function or method of SGLang (or of a library under it) that a patch replaces.

    ``target`` is the dotted name handed to SGLang's HookRegistry; ``versions`` the SGLang releases for which it holds;
    ``parameters`` the names that its signature must have, in order (``**name`` for a keyword catch-all);
    ``defined_in`` the module that defines it where ``target``'s module only imports it by name. ``archs`` are the
    cards on which SGLang reaches it, and ``when`` the values that SGLang's switches must have for it to be reached
    (all of them; a name that is missing here does not matter). ``use`` is "hook" for a function that is replaced, "call"
    for one that a fallback patch calls and "watch" for one that is called as it is and tells what it is called for.
    """

    patch: str
    target: str
    versions: Releases
    parameters: tuple[str, ...]
    archs: frozenset[str]
    reason: str
    hook: Literal["REPLACE", "AFTER", "AROUND"] = "REPLACE"
    use: Literal["hook", "call", "watch"] = "hook"
    defined_in: str | None = None
    when: tuple[tuple[str, bool], ...] = field(default=())

    @property
    def module(self) -> str:
        """The module part of ``target``: all of it before a class or function."""
        parts = self.target.split(".")
        return ".".join(parts[: -2 if parts[-2][:1].isupper() else -1])

    @property
    def qualname(self) -> str:
        return self.target[len(self.module) + 1 :]

    @property
    def in_sglang(self) -> bool:
        """True where the definition lies inside SGLang's own wheel and can be read without a GPU."""
        return self.target.startswith("sglang.")


def seams_for(version: str, patches: tuple[str, ...] | None = None, arch: str | None = None) -> tuple[Seam, ...]:
    """The seams of ``patches`` (None: all) that hold for an SGLang version, and for a card where one is given."""
    return tuple(
        seam
        for seam in SEAMS
        if version in seam.versions
        and (patches is None or seam.patch in patches)
        and (arch is None or arch in seam.archs)
    )


def supported(version: str) -> bool:
    """True for the range of releases that the table was read from; a local build (``+cu130``) counts as its release."""
    return FIRST_VERSION <= Version(Version(version).public) <= LAST_VERSION


_ALL = Releases("0.5.15.post1", "0.5.23")
_SM90 = frozenset({"sm_90"})
_SM120 = frozenset({"sm_120"})
_EITHER = _SM90 | _SM120

_FLASH_MLA = (
    "q",
    "k_cache",
    "block_table",
    "cache_seqlens",
    "head_dim_v",
    "tile_scheduler_metadata",
    "num_splits",
    "softmax_scale",
    "causal",
    "descale_q",
    "descale_k",
    "is_fp8_kvcache",
    "indices",
    "attn_sink",
    "extra_k_cache",
    "extra_indices_in_kvcache",
    "topk_length",
    "extra_topk_length",
)
_LOGITS = (
    "q_fp8",
    "kvcache_fp8",
    "weight",
    "seq_lens",
    "page_table",
    "deep_gemm_metadata",
    "max_seq_len",
    "clean_logits",
)
_DEEP_GEMM_LOGITS = (
    "q",
    "kv_cache",
    "weights",
    "context_lens",
    "block_table",
    "schedule_meta",
    "max_context_len",
    "clean_logits",
    "indices",
)
_TOPK = ("scores", "seq_lens", "page_tables", "out_page_indices", "page_size", "out_raw_indices")
_TOPK_V2 = ("scores", "seq_lens", "page_tables", "out_page_indices", "page_size", "metadata", "out_raw_indices")
_HC_PRE = ("self", "x", "hc_fn", "hc_scale", "hc_base", "norm", "forward_batch")

_TILELANG = "SGLANG_OPT_USE_TILELANG_INDEXER"
_TORCH = "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH"
_INDEXER = "sglang.srt.layers.attention.dsv4.indexer"

_DECODE_SM90_OLD = "sgl_kernel.flash_mla.flash_mla_with_kvcache"
_DECODE_SM90_NEW = "sglang.kernels.ops.attention.flash_mla_interface.flash_mla_with_kvcache"
_DECODE_SM120_OLD = "sglang.srt.layers.attention.flash_mla_sm120.flash_mla_with_kvcache_sm120"
_DECODE_SM120_NEW = "sglang.kernels.ops.attention.flash_mla_sm120.flash_mla_with_kvcache_sm120"
_WHY_OLD = "imported by name inside the call, deepseek_v4_backend.py:1440"
_WHY_NEW = (
    "bound by functools.partial when the attention backend is built, deepseek_v4_backend.py:1268, which is after"
    " plug-ins load (scheduler.py:6323), so the replacement is what gets bound"
)


_FLASH_MLA_NEW = (*_FLASH_MLA, "kv_format", "use_legacy")


_ATTENTION = "sglang.srt.layers.attention.deepseek_v4_backend.DeepseekV4AttnBackend.forward"
_ATTENTION_OLD = (
    "self",
    "q",
    "k",
    "v",
    "layer",
    "forward_batch",
    "compress_ratio",
    "save_kv_cache",
    "attn_sink",
    "**_",
)
_ATTENTION_NEW = ("self", "q", "k", "v", "layer", "forward_batch", "*args", "**kwargs")


def _decode(patch: str, watched: frozenset[str]) -> tuple[Seam, ...]:
    """The decode on sm_90, and on the ``watched`` cards the method around it that knows whether its batch decodes."""
    return (
        Seam(patch, _DECODE_SM90_OLD, Releases("0.5.15.post1", "0.5.22"), _FLASH_MLA, _SM90, _WHY_OLD),
        Seam(
            patch,
            _DECODE_SM90_NEW,
            Releases("0.5.23", "0.5.23"),
            (*_FLASH_MLA, "kv_format", "use_legacy"),
            _SM90,
            _WHY_NEW,
        ),
        *(
            Seam(
                patch,
                _ATTENTION,
                versions,
                parameters,
                watched,
                "where prefill can take the decode's function, deepseek_v4_backend.py:1312; deepseek_v4_backend.py:4132",
                hook="AROUND",
                use="watch",
            )
            for versions, parameters in (
                (Releases("0.5.15.post1", "0.5.20"), _ATTENTION_OLD),
                (Releases("0.5.21", "0.5.23"), _ATTENTION_NEW),
            )
        ),
    )


_TOPK_JIT = "sglang.jit_kernel.dsv4.topk"
_TOPK_OPS = "sglang.kernels.ops.attention.dsv4.topk"


def _topk(name: str, first: str, last: str, parameters: tuple[str, ...], home: str, line: str) -> tuple[Seam, ...]:
    why = "the default off sm_120" if name.endswith("_v2") else "without SGLANG_OPT_USE_TOPK_V2, as on sm_120"
    versions = Releases(first, last)
    return (Seam("topk", f"{_INDEXER}.{name}", versions, parameters, _EITHER, f"{why}, {line}", defined_in=home),)


SEAMS: tuple[Seam, ...] = (
    *_decode("sparse_mla", _EITHER),
    Seam(
        "sparse_mla",
        _DECODE_SM120_OLD,
        Releases("0.5.15.post1", "0.5.15.post1"),
        ("**kwargs",),
        _SM120,
        "imported by name inside the call, deepseek_v4_backend.py:1420",
    ),
    Seam(
        "sparse_mla",
        _DECODE_SM120_NEW,
        Releases("0.5.16", "0.5.23"),
        ("**kwargs",),
        _SM120,
        "imported by name inside the call; deepseek_v4_backend.py:4336",
    ),
    Seam(
        "indexer",
        "deep_gemm.fp8_paged_mqa_logits",
        _ALL,
        _DEEP_GEMM_LOGITS,
        _EITHER,
        "the default, imported by name inside the call, indexer.py:672; indexer.py:880",
        when=((_TILELANG, False), (_TORCH, False)),
    ),
    Seam(
        "indexer",
        f"{_INDEXER}.fp8_paged_mqa_logits_torch",
        _ALL,
        _LOGITS,
        _SM90,
        "off sm_120, indexer.py:670; indexer.py:872",
        when=((_TILELANG, False), (_TORCH, True)),
    ),
    Seam(
        "indexer",
        f"{_INDEXER}.fp8_paged_mqa_logits_torch_sm120",
        _ALL,
        _LOGITS,
        _SM120,
        "on sm_120, indexer.py:668; indexer.py:870",
        when=((_TILELANG, False), (_TORCH, True)),
    ),
    Seam(
        "indexer",
        "sglang.srt.layers.attention.dsa.tilelang_kernel.tilelang_fp8_paged_mqa_logits",
        Releases("0.5.15.post1", "0.5.15.post1"),
        _LOGITS,
        _EITHER,
        "goes ahead of the others where its switch is on, indexer.py:660",
        when=((_TILELANG, True),),
    ),
    Seam(
        "indexer",
        "sglang.kernels.ops.attention.dsa.tilelang_kernel.tilelang_fp8_paged_mqa_logits",
        Releases("0.5.16", "0.5.23"),
        _LOGITS,
        _EITHER,
        "goes ahead of the others where its switch is on; indexer.py:862, as on sm_120, model_hook.py:501",
        when=((_TILELANG, True),),
    ),
    *_topk("topk_transform_512", "0.5.15.post1", "0.5.16", _TOPK, _TOPK_JIT, "indexer.py:774"),
    *_topk("topk_transform_512", "0.5.17", "0.5.19", _TOPK, _TOPK_OPS, "indexer.py"),
    *_topk("topk_transform_paged", "0.5.20", "0.5.23", _TOPK, _TOPK_OPS, "indexer.py:991"),
    *_topk("topk_transform_512_v2", "0.5.15.post1", "0.5.16", _TOPK_V2, _TOPK_JIT, "indexer.py:765"),
    *_topk("topk_transform_512_v2", "0.5.17", "0.5.18", _TOPK_V2, _TOPK_OPS, "indexer.py"),
    *_topk("topk_transform_512_v2", "0.5.19", "0.5.19", _TOPK_V2[:-1], _TOPK_OPS, "indexer.py"),
    *_topk("topk_transform_paged_v2", "0.5.20", "0.5.23", _TOPK_V2, _TOPK_OPS, "indexer.py:981"),
    Seam(
        "hc_prenorm",
        "sglang.srt.models.deepseek_v4.DeepseekV4DecoderLayer.hc_pre",
        Releases("0.5.15.post1", "0.5.22"),
        _HC_PRE,
        _EITHER,
        "its fp32 branch is a closure, deepseek_v4.py:1214, so the whole method is the seam",
    ),
    Seam(
        "hc_prenorm",
        "sglang.srt.models.deepseek_v4.DeepseekV4DecoderLayerBase.hc_pre",
        Releases("0.5.23", "0.5.23"),
        _HC_PRE,
        _EITHER,
        "defined in the base class; deepseek_v4.py:3345, reached from deepseek_v4_boundary.py:241",
    ),
    *(
        Seam(
            "hc_prenorm",
            f"{home}.hc_split_sinkhorn",
            versions,
            ("mixes", "hc_scale", "hc_base", "hc_mult", "sinkhorn_iters", "eps"),
            _EITHER,
            "what SGLang's own fp32 branch continues with, mhc.py:135; mhc.py:427",
            use="call",
        )
        for home, versions in (
            ("sglang.srt.layers.mhc", Releases("0.5.15.post1", "0.5.15.post1")),
            ("sglang.kernels.ops.layernorm.mhc", Releases("0.5.16", "0.5.23")),
        )
    ),
    *_decode("fallback_sparse_mla", _SM90),
    Seam(
        "fallback_sparse_mla",
        _DECODE_SM120_OLD,
        Releases("0.5.15.post1", "0.5.15.post1"),
        ("**kwargs",),
        _SM90,
        "what sm_120 decodes with, flash_mla_sm120.py:205",
        use="call",
    ),
    Seam(
        "fallback_sparse_mla",
        _DECODE_SM120_NEW,
        Releases("0.5.16", "0.5.23"),
        ("**kwargs",),
        _SM90,
        "what sm_120 decodes with; flash_mla_sm120.py:298",
        use="call",
    ),
    Seam(
        "fallback_indexer",
        f"{_INDEXER}.fp8_paged_mqa_logits_torch",
        _ALL,
        _LOGITS,
        _SM90,
        "what SGLang picks off sm_120; it asserts lengths of [B] where [B,1] comes, indexer.py:78",
        when=((_TILELANG, False), (_TORCH, True)),
    ),
    Seam(
        "fallback_indexer",
        f"{_INDEXER}.fp8_paged_mqa_logits_torch_sm120",
        _ALL,
        _LOGITS,
        _SM90,
        "what SGLang picks on sm_120, indexer.py:163; indexer.py:188",
        use="call",
    ),
    Seam(
        "prewarm",
        "sglang.srt.model_loader.loader.DummyModelLoader.load_model",
        _ALL,
        ("self", "model_config", "device_config"),
        _EITHER,
        "never calls load_weights, where the prewarm hangs, loader.py:1387; deepseek_v4.py:2792",
        hook="AFTER",
    ),
    *(
        Seam(
            "prewarm",
            f"sglang.srt.models.deepseek_v4.DeepseekV4ForCausalLM.{name}",
            versions,
            ("self",),
            _EITHER,
            "one launch for each n_splits bucket, deepseek_v4.py:2400; deepseek_v4.py:5183",
            use="call",
        )
        for name, versions in (
            ("_prewarm_mhc_pre_kernels", Releases("0.5.15.post1", "0.5.16")),
            ("_prewarm_mhc_kernels", Releases("0.5.17", "0.5.23")),
        )
    ),
    Seam(
        "scaled_weights",
        "sglang.srt.model_loader.loader.initialize_dummy_weights",
        _ALL,
        ("model", "low", "high", "seed"),
        _EITHER | {CPU},
        "called by name for a dummy load, loader.py:1411; loader.py:1517",
        defined_in="sglang.srt.model_loader.weight_utils",
    ),
)
