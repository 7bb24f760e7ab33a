"""What the emulator finds wrong: with the program, or with its own knowledge of PTX."""

from __future__ import annotations


class EmulationError(Exception):
    """The program did what PTX leaves undefined, or what no right kernel does."""


class UnknownInstructionError(EmulationError):
    """The emulator does not know this instruction, or not in this form: it never guesses."""


class RaceError(EmulationError):
    """Two warps touch the same bytes of shared memory, one of them writing, and nothing orders them."""


class MissingFenceError(EmulationError):
    """wgmma reads shared memory whose writer did not fence its writes for the asynchronous proxy."""


class BoundsError(EmulationError):
    """An access outside of the memory there is, at an address its size does not divide, or a write of read-only memory."""


class DeadlockError(EmulationError):
    """No warpgroup can go on."""
