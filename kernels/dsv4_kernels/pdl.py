"""Programmatic dependent launch: a call's next kernel is brought onto the card while the one before it ends (sm_90 and later).

A kernel that was launched so waits first of all, in every program: when it goes on, all that came before has ended and is
visible. Were one program to leave before it waits, the kernel after it could overtake the one before it.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from .card import INTERPRETING

# The interpreter runs one launch after the other, and has neither instruction.
OVERLAPS = tl.constexpr(not INTERPRETING)


@triton.jit
def wait_for_previous(PDL: tl.constexpr):
    """Until the kernel before this one has ended. First in a kernel that is launched with ``launch_options(True)``."""
    if PDL and OVERLAPS:
        gdc_wait()


@triton.jit
def let_next_start(PDL: tl.constexpr):
    """Let the next kernel's programs take what room is left; they wait."""
    if PDL and OVERLAPS:
        gdc_launch_dependents()


def launch_options(pdl: bool) -> dict[str, Any]:
    """Options of the launch of a kernel that waits for the one before it by itself."""
    return {"launch_pdl": True} if pdl else {}
