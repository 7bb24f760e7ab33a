"""The work behind the entry point: choose, check, hook, say so. Anything wrong raises PluginError."""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from dsv4_kernels.sglang_plugin import forward_mode, hooks
from dsv4_kernels.sglang_plugin.broken import broken as broken_kernel
from dsv4_kernels.sglang_plugin.counts import Counts
from dsv4_kernels.sglang_plugin.resolve import SeamStatus, check_live, check_source, installed_source, load
from dsv4_kernels.sglang_plugin.seams import FIRST_VERSION, LAST_VERSION, Seam, seams_for, supported
from dsv4_kernels.sglang_plugin.settings import (
    CPU,
    PREWARM,
    SCALED_WEIGHTS,
    PluginError,
    Settings,
    choose_patches,
    read_settings,
)
from dsv4_kernels.sglang_plugin.switches import Switch, conflicts, reached, refuse_conflicts

KERNELS: Mapping[str, str] = {
    "sparse_mla": "sparse_mla_decode",
    "indexer": "paged_mqa_logits",
    "topk": "topk_transform",
    "hc_prenorm": "hc_prenorm",
}
"""Each patch's kernel, by its name in ``dsv4_kernels``."""


def say(line: str) -> None:
    """One line on stderr: plug-ins load before SGLang sets up logging (scheduler.py:4295); a logger would drop it."""
    print(f"[dsv4_kernels] {line}", file=sys.stderr, flush=True)


def run(environ: Mapping[str, str]) -> None:
    """Do what the environment asks for in this process. Raises PluginError where that is impossible.

    A launcher (the process that a user started) runs no model: there the seams inside SGLang are compared by reading
    its source, so that a server that cannot be patched stops at once, without importing model code. The scheduler,
    its child, imports them, compares signatures and registers the hooks.
    """
    settings = read_settings(environ)
    if settings.patches == () and settings.fallback == ():
        return
    arch = card_arch()
    patches = choose_patches(settings, arch)
    if not patches:
        card = "no CUDA device" if arch is None else arch
        say(f"no patch suits this machine ({card}); SGLang runs as it is")
        return
    here = arch or CPU
    version = sglang_version()
    require_seams(patches, version, here)
    if not runs_the_model():
        return
    patches = _without_conflicts(settings, patches, here)
    hook(patches, version, here, settings.counts_file, settings.broken)


def runs_the_model() -> bool:
    """True in a scheduler: a child process that is neither a detokenizer nor a data-parallel controller.

    From 0.5.23 on those two load plug-ins as well (detokenizer_manager.py:552, data_parallel_controller.py:960).
    """
    if multiprocessing.parent_process() is None:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name in ("run_detokenizer_process", "run_data_parallel_controller_process"):
            return False
        frame = frame.f_back
    return True


def card_arch() -> str | None:
    """ "sm_90", "sm_120", ... of the first CUDA device, or None without one (a ROCm device is none)."""
    import torch

    if torch.version.hip is not None or not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}"


def sglang_version() -> str:
    """Version of the installed SGLang. Raises PluginError outside the range that the seams were read from."""
    version = importlib.metadata.version("sglang")
    if not supported(version):
        raise PluginError(
            f"SGLang {version} is installed, and the seams are known from {FIRST_VERSION} to {LAST_VERSION}; install "
            "one of those, add the version to dsv4_kernels/sglang_plugin/seams.py, or set DSV4_PATCHES=none"
        )
    return version


def sglang_switch(name: str) -> bool | str:
    """One of SGLang's settings as SGLang resolves it; False for one that this release does not have."""
    from sglang.srt.environ import envs

    field = getattr(envs, name, None)
    return False if field is None else field.get()


def require_seams(patches: tuple[str, ...], version: str, arch: str) -> None:
    """Check by source that every seam inside SGLang is as described. Raises PluginError naming those that are not, and a
    patch for which this release has none on this card."""
    for patch in patches:
        if not any(s.use == "hook" for s in seams_for(version, (patch,), arch)):
            raise PluginError(
                f"patch {patch}: no seam is known for SGLang {version} on {arch}; add it to "
                "dsv4_kernels/sglang_plugin/seams.py, or leave the patch out of DSV4_PATCHES"
            )
    _refuse_problems(
        [check_source(s, installed_source) for s in seams_for(version, patches, arch) if s.in_sglang], version
    )


def hook(patches: tuple[str, ...], version: str, arch: str, counts_file: str | None, broken: str | None = None) -> None:
    """Register every hook with SGLang's registry. Raises PluginError if a seam is absent, different or taken."""
    import torch
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    chosen = {patch: reached_seams(patch, version, arch, sglang_switch) for patch in patches}
    watched = [seam for patch in patches for seam in watched_seams(patch, version, arch)]
    _refuse_problems([check_live(s) for s in (*(s for seams in chosen.values() for s in seams), *watched)], version)
    for seams in chosen.values():
        for seam in seams:
            if any(kind is HookType.REPLACE for kind, *_ in HookRegistry._hooks.get(seam.target, ())):
                raise PluginError(f"another plug-in already replaces {seam.target}; narrow them with SGLANG_PLUGINS")
    header = {
        "sglang": version,
        "arch": arch,
        "patches": {patch: [seam.target for seam in seams] for patch, seams in chosen.items()},
    }
    capturing = torch.cuda.is_current_stream_capturing if torch.cuda.is_available() else lambda: False
    counts = Counts(counts_file, header, capturing)
    for patch, seams in chosen.items():
        for seam in seams:
            HookRegistry.register(seam.target, build(seam, version, counts.note, broken), HookType[seam.hook])
            say(f"patch {patch} on {arch}: {seam.target} (sglang {version}, known for {seam.versions})")
            if patch == broken:
                say(f"patch {patch} is WRONG ON PURPOSE (DSV4_BROKEN): its figures and answers are worth nothing")
    for seam in watched:
        HookRegistry.register(
            seam.target, forward_mode.watch(counts.decoding_nothing, seam.parameters), HookType[seam.hook]
        )
    counts.write()


def watched_seams(patch: str, version: str, arch: str) -> tuple[Seam, ...]:
    """What is only looked at for one patch, to tell the decodes among its calls from the rest."""
    return tuple(s for s in seams_for(version, (patch,), arch) if s.use == "watch")


def reached_seams(patch: str, version: str, arch: str, switch: Switch) -> tuple[Seam, ...]:
    """The functions to replace for one patch. Raises PluginError where SGLang's switches lead to none of them."""
    seams = tuple(s for s in seams_for(version, (patch,), arch) if s.use == "hook" and reached(s, switch))
    if not seams:
        raise PluginError(f"patch {patch}: SGLang {version} on {arch} reaches none of its seams with these switches")
    return seams


def build(seam: Seam, version: str, note: Callable[[str, int], None], broken: str | None = None) -> Callable[..., Any]:
    """The function that takes the seam's place. Raises PluginError where the kernel is not in ``dsv4_kernels``."""
    if seam.patch == "fallback_sparse_mla":
        return hooks.fallback_decode_hook(_called(seam.patch, version), note, seam.parameters)
    if seam.patch == "fallback_indexer":
        return hooks.fallback_indexer_hook(_called(seam.patch, version), note)
    if seam.patch == PREWARM:
        return hooks.prewarm_hook(_called_seam(PREWARM, version).qualname.rsplit(".", 1)[-1], note)
    if seam.patch == SCALED_WEIGHTS:
        from dsv4_kernels.sglang_plugin.scaled_weights import scaled_weights_hook

        return scaled_weights_hook(note)
    kernel = _kernel(seam.patch)
    if seam.patch == broken:
        kernel = broken_kernel(seam.patch, kernel)
    if seam.patch == "sparse_mla":
        return hooks.sparse_decode_hook(kernel, note, seam.parameters)
    if seam.patch == "indexer":
        return hooks.indexer_hook(kernel, note)
    if seam.patch == "topk":
        return hooks.topk_hook(kernel, note, seam.parameters)
    from dsv4_kernels.sglang_plugin.hc_combine import combine
    from dsv4_kernels.sglang_plugin.hyper_connection import hc_pre_hook

    return hc_pre_hook(kernel, _called(seam.patch, version), combine, note)


def check_seams(arch: str | None = None) -> list[SeamStatus]:
    """Every seam of the installed SGLang, for a doctor: those inside it by source, those outside it by import.

    ``arch`` limits them to one card's (None: all). Raises PluginError for an unknown SGLang version.
    """
    return [
        check_source(seam, installed_source) if seam.in_sglang else check_live(seam)
        for seam in seams_for(sglang_version(), None, arch)
    ]


def _without_conflicts(settings: Settings, patches: tuple[str, ...], arch: str) -> tuple[str, ...]:
    """Refuse a patch that was asked for and would not be reached; leave out one that was only a default."""
    if settings.asks_for_something:
        refuse_conflicts(patches, arch, sglang_switch)
        return patches
    kept = []
    for patch in patches:
        why = conflicts(patch, arch, sglang_switch)
        if why:
            say(f"patch {patch} left out, since DSV4_PATCHES did not ask for it: {why}")
        else:
            kept.append(patch)
    return tuple(kept)


def _refuse_problems(statuses: list[SeamStatus], version: str) -> None:
    bad = [s for s in statuses if not s.ok]
    if bad:
        lines = "; ".join(f"{s.seam.patch}: {s.seam.target}: {s.problem}" for s in bad)
        raise PluginError(
            f"SGLang {version} does not have the seams that the patches need: {lines}. "
            "Set DSV4_PATCHES to the patches that remain, or to none"
        )


def _kernel(patch: str) -> Callable[..., Any]:
    name = KERNELS[patch]
    try:
        kernel = getattr(importlib.import_module("dsv4_kernels"), name)
    except AttributeError:
        raise PluginError(
            f"dsv4_kernels has no {name}, which patch {patch} calls; is another version installed?"
        ) from None
    found: Callable[..., Any] = kernel
    return found


def _called(patch: str, version: str) -> Callable[..., Any]:
    """SGLang's function that a patch goes on to call, imported at the first call (some bring a CUDA runtime along)."""
    seam = _called_seam(patch, version)
    loaded: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not loaded:
            loaded.append(load(seam))
        return loaded[0](*args, **kwargs)

    return call


def _called_seam(patch: str, version: str) -> Seam:
    (seam,) = (s for s in seams_for(version, (patch,)) if s.use == "call")
    return seam


__all__ = ["build", "card_arch", "check_seams", "hook", "reached_seams", "require_seams", "run"]
