"""Operands as functions: how one is read from a warpgroup's registers, and how a result is written to them.

A register holds 128 values, one a lane, as an array of its declared width; an array is replaced, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

import numpy as np

from ptx.errors import UnknownInstructionError
from ptx.formats import from_bf16, to_bf16
from ptx.parse import Program

LANES = 128  # of a warpgroup
WARP = 32
SHARED_BASE = 1024  # where the kernel's shared memory starts: at a multiple of a 128-byte swizzle's 1024 bytes
DTYPES: dict[str, type] = {
    "pred": np.bool_, "b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "s16": np.int16, "s32": np.int32, "s64": np.int64, "f16": np.float16, "f32": np.float32, "bf16": np.uint16,
}  # fmt: skip
_SPECIAL = ("%tid.x", "%ctaid.x")
_NUMBER = re.compile(r"0f[0-9A-Fa-f]{8}|-?\d+|0x[0-9A-Fa-f]+")
# What a lane holds that no instruction has written.
_GARBAGE = 0xDEADBEEFDEADBEEF

Mask = np.ndarray | None
"""Which of the 128 lanes take part; None: all."""


class State(Protocol):
    """What an instruction sees of its warpgroup. ``unfenced``: registers written since the last ``wgmma.fence``."""

    registers: dict[str, np.ndarray]
    unfenced: set[str]


Reader = Callable[[State], np.ndarray]
Writer = Callable[[State, np.ndarray, Mask], None]


def reader(operand: str, kind: str, program: Program) -> Reader:
    """Read an operand as 128 values of a PTX type; bf16 and f16 come as fp32."""
    dtype = np.dtype(DTYPES[kind])
    if operand == "global_smem":
        return _constant(SHARED_BASE, dtype)
    if _NUMBER.fullmatch(operand):
        if kind in ("bf16", "f16"):
            raise UnknownInstructionError(f"a constant {operand} of type {kind}")
        return _constant(_number(operand, kind), dtype)
    if operand not in _SPECIAL:
        declared = np.dtype(DTYPES[program.type_of(operand)])
        if declared.itemsize != dtype.itemsize:
            raise UnknownInstructionError(f"register {operand} is a {program.type_of(operand)}, read as {kind}")
    if kind == "bf16":
        return lambda state: from_bf16(state.registers[operand])
    if kind == "f16":
        return lambda state: state.registers[operand].view(np.float16).astype(np.float32)
    return lambda state: state.registers[operand].view(dtype)


def writer(register: str, kind: str, program: Program) -> Writer:
    """Write 128 values of a PTX type to a register, in the lanes that take part; bf16 is given as fp32."""
    stored = np.dtype(DTYPES[program.type_of(register)])
    dtype = np.dtype(DTYPES[kind])
    if stored.itemsize != dtype.itemsize:
        raise UnknownInstructionError(f"register {register} is a {program.type_of(register)}, written as {kind}")
    garbage = np.full(LANES, _GARBAGE & (2 ** (8 * stored.itemsize) - 1), np.uint64).astype(stored)

    def write(state: State, values: np.ndarray, active: Mask) -> None:
        bits = to_bf16(values) if kind == "bf16" else values.astype(dtype, copy=False).view(stored)
        if active is not None:
            bits = np.where(active, bits, state.registers.get(register, garbage))
        state.registers[register] = bits
        state.unfenced.add(register)

    return write


def _number(text: str, kind: str) -> int:
    value = int(text[2:], 16) if text.startswith("0f") else int(text, 0)
    if kind == "pred":
        return int(value != 0)
    return value & (2 ** (8 * np.dtype(DTYPES[kind]).itemsize) - 1)


def _constant(value: int, dtype: np.dtype) -> Reader:
    values = np.full(LANES, value, np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    values.flags.writeable = False
    return lambda state: values


def address(operand: str, program: Program) -> Reader:
    """Read ``[base + offset]`` as 128 addresses int64."""
    found = re.fullmatch(r"\[\s*([%\w@]+)\s*(?:\+\s*(-?\d+))?\s*\]", operand)
    if found is None:
        raise UnknownInstructionError(f"an address {operand}")
    kind = "b32" if found[1] == "global_smem" else program.type_of(found[1])
    base, offset = reader(found[1], kind, program), int(found[2] or 0)
    return lambda state: base(state).astype(np.int64) + offset
