"""Instructions that load, store, or pass values between the lanes of a warp."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptx.errors import UnknownInstructionError
from ptx.parse import Instruction, Program, members
from ptx.registers import DTYPES, LANES, WARP, Mask, address, reader, writer

if TYPE_CHECKING:
    from ptx.machine import Warpgroup

Handler = Callable[["Warpgroup", Mask], None]
_ACCESS = re.compile(r"(ld|st)\.(global|shared|shared::cta)(?:\.v([24]))?\.(b8|b16|b32|b64|u8|u16|u32|u64|f32)")
_PARAMETER = re.compile(r"\[\w+_param_(\d+)\]")


def decode(instruction: Instruction, program: Program) -> Handler | None:
    """What the instruction does; None if it is none of these."""
    op = instruction.op
    if op.startswith("ld.param"):
        return _parameter(instruction, program)
    if found := _ACCESS.fullmatch(op):
        transfer = _load if found[1] == "ld" else _store
        return transfer(instruction, program, found[2] != "global", int(found[3] or 1), found[4])
    if op == "stmatrix.sync.aligned.m8n8.x4.shared.b16":
        return _store_matrices(instruction, program)
    if op.startswith("shfl"):
        return _shuffle(instruction, program)
    if op == "elect.sync":
        return _elect(instruction, program)
    return None


def _parameter(instruction: Instruction, program: Program) -> Handler:
    found = _PARAMETER.fullmatch(instruction.operands[1])
    kind = instruction.op.removeprefix("ld.param.")
    if found is None or kind not in ("b32", "u32", "f32", "b64", "u64"):
        raise UnknownInstructionError(instruction.text)
    number, dtype, write = int(found[1]), np.dtype(DTYPES[kind]), writer(instruction.operands[0], kind, program)

    def load(group: Warpgroup, active: Mask) -> None:
        bits = group.block.parameters[number] & (2 ** (8 * dtype.itemsize) - 1)
        write(group, np.full(LANES, bits, f"u{dtype.itemsize}").view(dtype), active)

    return load


def _width(instruction: Instruction, registers: list[str], count: int, kind: str, program: Program) -> tuple[int, str]:
    """Bytes of an element, and the type of the registers that hold one: a byte lies in a wider one."""
    if len(registers) != count:
        raise UnknownInstructionError(f"{instruction.text}: {len(registers)} registers, not {count}")
    named = [name for name in registers if name.startswith("%")]
    held = program.type_of(named[0]) if kind in ("b8", "u8") and named else kind
    return np.dtype(DTYPES[kind]).itemsize, held


def _load(instruction: Instruction, program: Program, shared: bool, count: int, kind: str) -> Handler:
    registers, where = members(instruction.operands[0]), address(instruction.operands[1], program)
    size, held = _width(instruction, registers, count, kind, program)
    writes = [writer(name, held, program) for name in registers]
    dtype, register_dtype = np.dtype(f"u{size}"), np.dtype(DTYPES[held])

    def load(group: Warpgroup, active: Mask) -> None:
        if shared:
            data = group.block.shared.load(where(group), size * count, active, group.warps)
        else:
            data = group.block.memory.load(where(group), size * count, active)
        values = data.view(dtype)
        for n, write in enumerate(writes):
            value = np.ascontiguousarray(values[:, n])
            write(group, value.astype(register_dtype) if held != kind else value.view(register_dtype), active)

    return load


def _store(instruction: Instruction, program: Program, shared: bool, count: int, kind: str) -> Handler:
    where, registers = address(instruction.operands[0], program), members(instruction.operands[1])
    size, held = _width(instruction, registers, count, kind, program)
    reads = [reader(name, held, program) for name in registers]
    dtype = np.dtype(f"u{size}")

    def store(group: Warpgroup, active: Mask) -> None:
        values = np.empty((LANES, count), dtype)
        for n, read in enumerate(reads):
            value = read(group)
            values[:, n] = value.astype(dtype) if held != kind else value.view(dtype)
        data = values.view(np.uint8)
        if shared:
            group.block.shared.store(where(group), data, active, group.warps)
        else:
            group.block.memory.store(where(group), data, active)

    return store


def _store_matrices(instruction: Instruction, program: Program) -> Handler:
    """PTX ISA, "stmatrix": lane 8k + r gives the address of row r of matrix k, whose values lanes 4r to 4r + 3 hold."""
    where = address(instruction.operands[0], program)
    reads = [reader(name, "b32", program) for name in members(instruction.operands[1])]
    if len(reads) != 4:
        raise UnknownInstructionError(instruction.text)

    def store(group: Warpgroup, active: Mask) -> None:
        _require_all(active, instruction)
        held = np.stack([read(group) for read in reads]).reshape(4, LANES // WARP, 8, 4)
        rows = np.ascontiguousarray(held.transpose(1, 0, 2, 3)).reshape(LANES, 4)
        group.block.shared.store(where(group), rows.view(np.uint8), None, group.warps)

    return store


def _shuffle(instruction: Instruction, program: Program) -> Handler:
    to, value, lane, *rest = instruction.operands
    if instruction.op not in ("shfl.sync.bfly.b32", "shfl.sync.idx.b32") or rest != ["31", "-1"] or not lane.isdigit():
        raise UnknownInstructionError(instruction.text)
    lanes = np.arange(WARP)
    source = lanes ^ int(lane) if "bfly" in instruction.op else np.full(WARP, int(lane))
    read, write = reader(value, "b32", program), writer(to, "b32", program)

    def shuffle(group: Warpgroup, active: Mask) -> None:
        _require_all(active, instruction)
        write(group, read(group).reshape(-1, WARP)[:, source].reshape(-1), None)

    return shuffle


def _elect(instruction: Instruction, program: Program) -> Handler:
    """One lane of each warp; which one is the hardware's choice, here it is the first."""
    lane, _, chosen = instruction.operands[0].partition("|")
    if instruction.operands[1:] != ("-1",) or not chosen:
        raise UnknownInstructionError(instruction.text)
    write_lane, write_chosen = writer(lane, "b32", program), writer(chosen, "pred", program)
    first = np.arange(LANES) % WARP == 0

    def elect(group: Warpgroup, active: Mask) -> None:
        _require_all(active, instruction)
        write_lane(group, np.zeros(LANES, np.uint32), None)
        write_chosen(group, first, None)

    return elect


def _require_all(active: Mask, instruction: Instruction) -> None:
    """A warp's lanes do this together: refuse it where only some take part."""
    if active is not None and not active.all():
        raise UnknownInstructionError(f"by some lanes alone: {instruction.text}")
