"""Where a server's compilers keep what they compile: each one's folder, and the variables that put it there (pure)."""

from __future__ import annotations

import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from string import Template


@dataclass(frozen=True)
class Cache:
    """One compiler's cache. ``folder`` is where it lies if a recipe says nothing; ``variables`` are the environment variables
    that move it, each with its place relative to the folder. ``parts`` is how many of the folder's last parts name it.
    """

    folder: str
    variables: Mapping[str, str]
    parts: int = 1

    @property
    def name(self) -> tuple[str, ...]:
        return _name(self.folder, self.parts)

    def place(self, listed: Sequence[str]) -> str:
        """The first of a recipe's folders that bears this cache's name (a leading dot aside), or the usual one."""
        return next((one for one in listed if _name(one, self.parts) == self.name), self.folder)


KNOWN = (
    Cache("~/.triton", {"TRITON_CACHE_DIR": "cache"}),
    Cache("~/.tilelang", {"TILELANG_CACHE_DIR": "cache"}),
    Cache("~/.cache/tvm-ffi", {"TVM_FFI_CACHE_DIR": ""}),
    # SGLang sets DeepGEMM's own variable from the other one, but for a process that imports DeepGEMM by itself.
    Cache("~/.cache/deep_gemm", {"SGLANG_DG_CACHE_DIR": "", "DG_JIT_CACHE_DIR": ""}),
    Cache("~/.cache/flashinfer", {"FLASHINFER_WORKSPACE_BASE": "../..", "FLASHINFER_CUBIN_DIR": "cubins"}, parts=2),
    Cache("~/.cache/torchinductor", {"TORCHINDUCTOR_CACHE_DIR": ""}),
    Cache("~/.cache/torch_extensions", {"TORCH_EXTENSIONS_DIR": ""}),
    Cache("~/.cache/cutlass_python_cache", {"CUTE_DSL_CACHE_DIR": ""}),
    # SGLang's own: graphs that it has compiled whole, with an Inductor and a Triton cache among them.
    Cache("~/.cache/sglang", {"SGLANG_CACHE_DIR": ""}),
)
"""The compilers of SGLang 0.5.15.post1's servers. Two of them are elsewhere by default, where nothing lasts and nobody looks:
Inductor below /tmp, and with it, once it has made its first kernel, all of Triton; CuTe's DSL below /tmp too.
"""

VARIABLES = tuple(name for cache in KNOWN for name in cache.variables)


def variables(listed: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that put every known cache where a recipe's ``jit_caches`` say, or where it usually is."""
    return {
        variable: os.path.normpath(os.path.join(expanded(cache.place(listed), environ), inside))
        for cache in KNOWN
        for variable, inside in cache.variables.items()
    }


def watched(listed: Sequence[str]) -> list[str]:
    """All folders in which compiled files may appear: the recipe's own, and those of the known caches that it left out."""
    return list(dict.fromkeys([*listed, *(cache.place(listed) for cache in KNOWN)]))


def expanded(folder: str, environ: Mapping[str, str]) -> str:
    """A folder as a whole path: ``~`` is ``environ``'s HOME, and $NAME what ``environ`` says (left as it is if nothing)."""
    path = Template(folder).safe_substitute(environ)
    if path == "~" or path.startswith("~/"):
        path = environ.get("HOME", "~") + path[1:]
    return os.path.abspath(os.path.expanduser(path))


def _name(folder: str, parts: int) -> tuple[str, ...]:
    return tuple(part.lstrip(".") for part in PurePosixPath(folder).parts[-parts:])
