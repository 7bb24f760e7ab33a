"""Which card a launch is for, and what a compilation for that card must keep to."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

INTERPRETING = os.environ.get("TRITON_INTERPRET", "0") == "1"


@dataclass(frozen=True)
class Card:
    """One GPU architecture that the tuning tables have entries for.

    `capability` is major*10+minor; `shared_bytes` is the shared memory a block may opt in to (CUDA programming guide,
    table of technical specifications); `sms` is the multiprocessor count of the card the table was made for.
    """

    name: str
    capability: int
    shared_bytes: int
    sms: int

    @property
    def table(self) -> str:
        """The key of a launch's entries in the tuning tables: "interpreter" under the interpreter, else the name."""
        return "interpreter" if INTERPRETING else self.name


SM90 = Card("sm_90", 90, 232_448, 132)
SM120 = Card("sm_120", 120, 101_376, 188)
CARDS = (SM90, SM120)


@dataclass(frozen=True)
class CompileCase:
    """One compilation that a launcher can ask for: everything `triton.compile` needs but the target.

    `signature` maps every argument, in order, to its Triton type or to "constexpr"; `aligned` names the arguments that
    are specialised as multiples of 16, as Triton does at launch. `tensor_cores` promises MMA instructions. `gluon`: the
    kernel is written in Gluon, whose front end is another.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    num_warps: int
    num_stages: int
    aligned: tuple[str, ...] = ()
    tensor_cores: bool = False
    max_spill_bytes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    gluon: bool = False


class UnsupportedDevice(RuntimeError):
    """The tensors lie on a device that no tuning table covers."""


@functools.lru_cache(maxsize=64)
def _cuda_card(index: int) -> tuple[Card, int]:
    properties = torch.cuda.get_device_properties(index)
    capability = properties.major * 10 + properties.minor
    for card in CARDS:
        if card.capability == capability:
            return card, properties.multi_processor_count
    known = ", ".join(card.name for card in CARDS)
    raise UnsupportedDevice(
        f"{properties.name} is sm_{capability}; dsv4_kernels is tuned and proved for {known} only: "
        "add the card to dsv4_kernels.card and to every tuning table, and compile it in tests/correctness"
    )


def card_for(device: torch.device) -> tuple[Card, int]:
    """Return the card of `device` and the number of multiprocessors to spread work over.

    Under Triton's interpreter (TRITON_INTERPRET=1) a CPU device passes for sm_90 with 3 multiprocessors, so that work
    is split unevenly there too. Raises UnsupportedDevice for a CPU without the interpreter and for an unlisted GPU.
    """
    if device.type == "cuda":
        return _cuda_card(device.index if device.index is not None else torch.cuda.current_device())
    if INTERPRETING:
        return SM90, 3
    raise UnsupportedDevice(f"tensors are on {device}: use a CUDA device, or set TRITON_INTERPRET=1 before importing")
