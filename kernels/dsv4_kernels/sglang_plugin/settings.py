"""What the environment asks of the plug-in, as frozen data. Reads no GPU and imports neither torch nor SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KERNEL_PATCHES = ("sparse_mla", "indexer", "topk", "hc_prenorm")
"""Patches that put one of this project's kernels in SGLang's place, in the order in which they are applied."""

FALLBACK_PATCHES = ("fallback_sparse_mla", "fallback_indexer")
"""Patches that route a Hopper card to what SGLang runs on sm_120, so that its state can be measured there."""

PREWARM = "prewarm"
"""Runs SGLang's own compilation of its hyper-connection kernels under ``--load-format dummy``, which skips it."""

SCALED_WEIGHTS = "scaled_weights"
"""Gives ``--load-format dummy`` weights whose answers depend on every kernel, for the check of the answers."""

CPU = "cpu"
"""What stands for a card's architecture where there is none."""

ALL_PATCHES = (*KERNEL_PATCHES, *FALLBACK_PATCHES, PREWARM, SCALED_WEIGHTS)

SUITABLE_ARCHS: Mapping[str, frozenset[str]] = {
    **{name: frozenset({"sm_90", "sm_120"}) for name in KERNEL_PATCHES},
    **{name: frozenset({"sm_90"}) for name in FALLBACK_PATCHES},
    PREWARM: frozenset({"sm_90", "sm_120"}),
    SCALED_WEIGHTS: frozenset({"sm_90", "sm_120", CPU}),
}


class PluginError(Exception):
    """The server must not come up: what was asked for cannot be done. The message says what to change."""


@dataclass(frozen=True)
class Settings:
    """``patches`` is None where DSV4_PATCHES is unset: then all kernel patches that suit the card are meant.

    ``fallback`` holds names of FALLBACK_PATCHES, or is None for those of whatever is not patched.
    """

    patches: tuple[str, ...] | None = None
    fallback: tuple[str, ...] | None = ()
    counts_file: str | None = None
    broken: str | None = None

    @property
    def asks_for_something(self) -> bool:
        return bool(self.patches) or self.fallback != ()


def read_settings(environ: Mapping[str, str]) -> Settings:
    """Read DSV4_PATCHES (comma-separated; empty or ``none``: none), DSV4_FALLBACK, DSV4_COUNTS_FILE and DSV4_BROKEN.

    DSV4_FALLBACK is a list too (``sparse_mla,indexer``, with or without ``fallback_`` before each), or ``1`` for all
    that is not patched. Raises PluginError on a name that is no patch, a patch named twice, or a patch asked for
    beside its own fallback.
    """
    raw = environ.get("DSV4_PATCHES")
    patches = None if raw is None else _names("DSV4_PATCHES", raw, ALL_PATCHES)
    raw_fallback = environ.get("DSV4_FALLBACK", "")
    if raw_fallback.strip().lower() in ("1", "all"):
        fallback = None
    elif raw_fallback.strip() == "0":
        fallback = ()
    else:
        full = ",".join(_FALLBACK + n.strip().removeprefix(_FALLBACK) for n in raw_fallback.split(",") if n.strip())
        fallback = () if full == f"{_FALLBACK}none" else _names("DSV4_FALLBACK", full, FALLBACK_PATCHES)
    for name in (*(patches or ()), *(fallback or ())):
        if f"{_FALLBACK}{name}" in (*(patches or ()), *(fallback or ())):
            raise PluginError(f"{name} and {_FALLBACK}{name} were both asked for: both replace one function; keep one")
    broken = environ.get("DSV4_BROKEN") or None
    if broken is not None and (broken not in KERNEL_PATCHES or broken not in (patches or ())):
        raise PluginError(f"DSV4_BROKEN={broken!r} must be one of the kernel patches named in DSV4_PATCHES")
    return Settings(patches, fallback, environ.get("DSV4_COUNTS_FILE") or None, broken)


_FALLBACK = "fallback_"


def _names(variable: str, raw: str, known: tuple[str, ...]) -> tuple[str, ...]:
    if raw.strip().lower() in ("", "none"):
        return ()
    names = tuple(name.strip() for name in raw.split(",") if name.strip())
    unknown = [name for name in names if name not in known]
    if unknown:
        raise PluginError(f"{variable}={raw!r}: {', '.join(unknown)} is no patch; the patches are {', '.join(known)}")
    if len(set(names)) != len(names):
        raise PluginError(f"{variable}={raw!r} names a patch twice")
    return tuple(name for name in known if name in names)


def choose_patches(settings: Settings, arch: str | None) -> tuple[str, ...]:
    """The patches to apply on a card of ``arch`` ("sm_90", "sm_120", ...; None without a GPU).

    With DSV4_PATCHES unset, all kernel patches that suit the card (none, where a fallback was asked for). Raises
    PluginError when a patch was asked for that does not suit the card.
    """
    if settings.patches is None:
        names = [] if settings.fallback != () else [n for n in KERNEL_PATCHES if arch in SUITABLE_ARCHS[n]]
    else:
        names = list(settings.patches)
    if settings.fallback is None:
        names += [n for n in FALLBACK_PATCHES if n not in names and n.removeprefix(_FALLBACK) not in names]
    else:
        names += [n for n in settings.fallback if n not in names]
    for name in names:
        if (arch or CPU) not in SUITABLE_ARCHS[name]:
            here = "there is no CUDA device here" if arch is None else f"this card is {arch}"
            raise PluginError(
                f"patch {name} was asked for (DSV4_PATCHES, DSV4_FALLBACK), but it is for "
                f"{' and '.join(sorted(SUITABLE_ARCHS[name]))} and {here}; set DSV4_PATCHES=none to serve without it"
            )
    return tuple(n for n in ALL_PATCHES if n in names)
