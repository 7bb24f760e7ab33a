"""Warpgroup products: operands by their descriptors, fragments in registers, and when a result may be read.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Matrix Descriptor Format", "Strides" and "Swizzling Modes" for what
lies in shared memory, "Register Fragments for wgmma.mma_async.m64nNk16" for what lies in registers. Known are bf16 products with
fp32 sums and operands in shared memory with the 128-byte swizzle. Sums are those of fp64, rounded once an instruction.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ptx.clocks import WORD
from ptx.errors import EmulationError, UnknownInstructionError
from ptx.formats import from_bf16
from ptx.parse import Instruction, Program, members
from ptx.registers import LANES, SHARED_BASE, WARP, Mask, reader

if TYPE_CHECKING:
    from ptx.machine import Warpgroup

Handler = Callable[["Warpgroup", Mask], None]
_OP = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16\.bf16")
M, K = 64, 16
_LANE = np.arange(LANES)
_ROW = 16 * (_LANE // WARP) + _LANE % WARP // 4  # of a lane's first values in a fragment
_PAIR = 2 * (_LANE % 4)  # their first column


def decode(instruction: Instruction, program: Program) -> Handler | None:
    """What the instruction does; None if it is no wgmma."""
    op = instruction.op
    if op == "wgmma.fence.sync.aligned":
        return lambda group, active: group.products.fence(group)
    if op == "wgmma.commit_group.sync.aligned":
        return lambda group, active: group.products.commit()
    if op == "wgmma.wait_group.sync.aligned":
        left = int(instruction.operands[0])
        return lambda group, active: group.products.wait(group, left)
    if found := _OP.fullmatch(op):
        return _product(instruction, program, int(found[1]))
    return None


class Products:
    """A warpgroup's products that have not been waited for: what they read, and the registers they will write."""

    def __init__(self) -> None:
        self._open: list[np.ndarray] = []
        self._factors: dict[str, np.ndarray] = {}
        self._results: dict[str, np.ndarray] = {}
        self._committed: list[tuple[list[np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]] = []
        self.fenced = False  # the first product needs a fence whatever it reads

    def fence(self, group: Warpgroup) -> None:
        """``wgmma.fence``: products may use the registers as they are now."""
        self.fenced = True
        group.unfenced.clear()

    def add(self, words: list[np.ndarray], factors: dict[str, np.ndarray], results: dict[str, np.ndarray]) -> None:
        self._open += words
        self._factors |= factors
        self._results |= results

    def pending(self, register: str) -> np.ndarray | None:
        """What an earlier product leaves in a register: a product may add to it without waiting."""
        if register in self._results:
            return self._results[register]
        return next((results[register] for _, _, results in reversed(self._committed) if register in results), None)

    def commit(self) -> None:
        self._committed.append((self._open, self._factors, self._results))
        self._open, self._factors, self._results = [], {}, {}

    def wait(self, group: Warpgroup, left: int) -> None:
        """Let all committed groups but the latest ``left`` end: their results are in registers then."""
        while len(self._committed) > left:
            words, factors, results = self._committed.pop(0)
            for each in words:
                group.block.shared.log.end_product(each, group.rows)
            for register, values in factors.items():
                if group.registers[register] is not values:
                    raise EmulationError(f"{register} was written while wgmma read it")
            for register, values in results.items():
                if register in group.registers:
                    raise EmulationError(f"{register} was written while wgmma computed it")
                # A later group that adds to it is still at work on it.
                if self.pending(register) is None:
                    group.registers[register] = values
                    # From here on the lanes may use it, and the next product must not overtake them.
                    group.unfenced.add(register)

    def require_none(self) -> None:
        if self._open or self._committed:
            raise EmulationError("the program ends before it has waited for its products")


def _product(instruction: Instruction, program: Program, n: int) -> Handler:
    sums = members(instruction.operands[0])
    in_registers = instruction.operands[1].startswith("{")
    a_registers = members(instruction.operands[1]) if in_registers else []
    _, a, b, use_sums, sign_a, sign_b, *transposed = instruction.operands
    if len(sums) != n // 2 or (sign_a, sign_b) != ("1", "1") or len(transposed) != (1 if in_registers else 2):
        raise UnknownInstructionError(instruction.text)
    if transposed[:-1] not in ([], ["0"]) or transposed[-1] not in ("0", "1"):
        raise UnknownInstructionError(f"{instruction.text}: a transposed A")
    read_b, read_use = reader(b, "b64", program), reader(use_sums, "pred", program)
    read_a = [reader(name, "b32", program) for name in a_registers] or [reader(a, "b64", program)]

    def product(group: Warpgroup, active: Mask) -> None:
        if active is not None:
            raise EmulationError(f"by some lanes alone: {instruction.text[:80]}")
        if late := group.unfenced.intersection(sums + a_registers):
            raise EmulationError(f"{min(late)} was written or could be read, and no wgmma.fence followed")
        if not group.products.fenced:
            raise EmulationError("no wgmma.fence came before the first product")
        words: list[np.ndarray] = []
        if in_registers:
            left = _a_fragment([read(group) for read in read_a])
        else:
            left = _operand(group, _uniform(read_a[0](group), instruction), M, False, words)
        right = _operand(group, _uniform(read_b(group), instruction), n, transposed[-1] == "1", words)
        result = left.astype(np.float64) @ right.T.astype(np.float64)
        rows, columns = _sum_fragment(n)
        values = result[rows, columns]
        if _uniform(read_use(group), instruction):
            values = values + np.stack([_sum(group, name) for name in sums])
        for name in sums:
            group.registers.pop(name, None)
        factors = {name: group.registers[name] for name in a_registers}
        group.products.add(words, factors, dict(zip(sums, values.astype(np.float32).view(np.uint32), strict=True)))

    return product


def _sum(group: Warpgroup, register: str) -> np.ndarray:
    held = group.products.pending(register)
    return (group.registers[register] if held is None else held).view(np.float32)


def _uniform(values: np.ndarray, instruction: Instruction) -> int:
    if (values != values[0]).any():
        raise EmulationError(f"its operands differ between lanes: {instruction.text[:80]}")
    return int(values[0])


def _a_fragment(registers: list[np.ndarray]) -> np.ndarray:
    """A [64, 16] from four registers a lane, each a pair of bf16: rows 8 apart first, then columns 8 apart."""
    left = np.zeros((M, K), np.float32)
    for j, pair in enumerate(registers):
        rows, column = _ROW + 8 * (j & 1), _PAIR + 8 * (j >> 1)
        left[rows, column] = from_bf16(pair & np.uint32(0xFFFF))
        left[rows, column + 1] = from_bf16(pair >> np.uint32(16))
    return left


@functools.cache
def _sum_fragment(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each of a lane's n / 2 sums, both [n / 2, 128]."""
    j = np.arange(n // 2)[:, None]
    return _ROW + 8 * (j >> 1 & 1), 8 * (j >> 2) + _PAIR + (j & 1)


@functools.cache
def _offsets(count: int, leading: int, stride: int, transposed: bool) -> np.ndarray:
    """Bytes from an operand's start to each of its values [count, 16], before the swizzle.

    Each row of 128 bytes holds 64 values along the major dimension, K or, transposed, the other; 8 rows are a block of the
    swizzle. ``stride`` is from block to block across, and ``leading`` (transposed) from one 64 values to the next.
    """
    one, k = np.arange(count)[:, None], np.arange(K)[None]
    if transposed:
        return one // 64 * leading + k // 8 * stride + k % 8 * 128 + one % 64 * 2
    return one // 8 * stride + one % 8 * 128 + k * 2


def _operand(group: Warpgroup, descriptor: int, count: int, transposed: bool, words: list[np.ndarray]) -> np.ndarray:
    """An operand in shared memory as [count, 16] fp32; the words it takes are logged, and added to ``words``."""
    if descriptor >> 62 != 1 or descriptor >> 49 & 7:
        raise UnknownInstructionError(f"a descriptor {descriptor:#x}: only the 128-byte swizzle at offset 0 is known")
    start, leading, stride = ((descriptor >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    at = start + _offsets(count, leading, stride, transposed)
    at = at ^ (at >> 7 & 7) << 4
    values = group.block.shared.halves(at)
    # Two neighbours along the major dimension share a word, and the swizzle keeps them together.
    read = (at[::2] if transposed else at[:, ::2]).ravel() - SHARED_BASE
    words.append(read // WORD)
    group.block.shared.log.start_product(words[-1], group.rows)
    return from_bf16(values)
