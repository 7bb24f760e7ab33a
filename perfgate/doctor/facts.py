"""What the doctor found on a machine: data alone, so that the diagnosis can be tested without the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Card:
    """One GPU. Memory in GiB, power cap in W, ``arch`` as in ``sm_90``; ``processes`` are those that compute on it, as
    ``pid name``.
    """

    name: str
    memory_gib: float
    driver: str
    arch: str = ""
    power_w: float | None = None
    throttled: str = ""
    processes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Seam:
    """One place in SGLang that the plug-in replaces; ``problem`` is empty where it is as expected."""

    name: str
    problem: str = ""


@dataclass(frozen=True)
class RecipeFact:
    """What a recipe needs, or ``error`` where it cannot be read."""

    name: str
    device: str = "cpu"
    gpus: int = 1
    model_path: str | None = None
    model_there: bool = True
    patches: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """The whole machine. ``hardware`` is the file name of its baselines, None where it could not be told."""

    cpu: str
    cpus: int
    memory_gib: float
    disk_free_gib: float
    python: tuple[int, int, int]
    cards: tuple[Card, ...] = ()
    card_error: str = ""
    packages: Mapping[str, str | None] = field(default_factory=dict)
    seams: tuple[Seam, ...] = ()
    seam_error: str = ""
    recipes: tuple[RecipeFact, ...] = ()
    hardware: str | None = None
    baselines: frozenset[str] = frozenset()
    lock_holder: str = ""
    lock_problem: str = ""
    """Why this host's locks cannot be kept, empty where they can."""
    moved_caches: tuple[str, ...] = ()
    """Variables of this shell that would put compile caches elsewhere, which a server does not follow."""
