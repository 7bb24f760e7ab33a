"""Instructions of a lane on its own registers: a table of what each takes, gives and does.

Names and meanings: PTX ISA, "Instructions". Kinds are PTX's types; bf16 and f16 operands come as fp32. What hardware computes
approximately (``ex2.approx``, ``div.full``) is rounded correctly here, and ``fma`` may be rounded twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx.errors import UnknownInstructionError
from ptx.formats import E4M3_AS_FP16_BITS, flushed, to_bf16
from ptx.parse import Instruction, Program, members
from ptx.registers import Mask, State, reader, writer

Function = Callable[..., np.ndarray]


def _row(kinds: str, result: str, function: Function) -> tuple[tuple[str, ...], str, Function]:
    return tuple(kinds.split()), result, function


def _ftz(function: Function) -> Function:
    return lambda *values: flushed(function(*(flushed(value) for value in values)))


def _wide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product in twice as many bits: ``astype`` extends a signed operand by its sign, an unsigned one by zeros."""
    return a.astype(np.uint64) * b.astype(np.uint64)


def _shift_left(bits: int) -> Function:
    # numpy, like C, leaves a shift by the width or more undefined; PTX shifts everything out.
    return lambda a, by: np.where(by >= bits, 0, a << np.minimum(by, bits - 1).astype(a.dtype))


def _shift_right(bits: int) -> Function:
    def shifted(a: np.ndarray, by: np.ndarray) -> np.ndarray:
        within = a >> np.minimum(by, bits - 1).astype(a.dtype)
        return within if a.dtype.kind == "i" else np.where(by >= bits, 0, within)

    return shifted


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero, in 64 bits."""
    x, y = a.astype(np.int64), b.astype(np.int64)
    return np.where(y == 0, -1, np.sign(x) * np.sign(y) * (np.abs(x) // np.maximum(np.abs(y), 1)))


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) * b + c).astype(np.float32)


def _fp16_pair(pair: np.ndarray) -> np.ndarray:
    low, high = E4M3_AS_FP16_BITS[pair & 0xFF], E4M3_AS_FP16_BITS[pair >> 8]
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


def _bf16_pair(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return to_bf16(low).astype(np.uint32) | (to_bf16(high).astype(np.uint32) << np.uint32(16))


def _chosen(a: np.ndarray, b: np.ndarray, which: np.ndarray) -> np.ndarray:
    return np.where(which, a, b)


def _same(value: np.ndarray) -> np.ndarray:
    return value


TABLE = {
    "mul.bf16": _row("bf16 bf16", "bf16", np.multiply),
    "add.f32": _row("f32 f32", "f32", np.add),
    "sub.f32": _row("f32 f32", "f32", np.subtract),
    "mul.f32": _row("f32 f32", "f32", np.multiply),
    "max.f32": _row("f32 f32", "f32", np.fmax),  # of a NaN and a number, the number
    "min.f32": _row("f32 f32", "f32", np.fmin),
    "neg.f32": _row("f32", "f32", np.negative),
    "abs.f32": _row("f32", "f32", np.abs),
    "div.full.f32": _row("f32 f32", "f32", np.divide),
    "fma.rn.f32": _row("f32 f32 f32", "f32", _fma),
    "fma.rn.ftz.f32": _row("f32 f32 f32", "f32", _ftz(_fma)),
    "ex2.approx.ftz.f32": _row("f32", "f32", _ftz(lambda x: np.exp2(x.astype(np.float64)).astype(np.float32))),
    "cvt.rpi.ftz.f32.f32": _row("f32", "f32", _ftz(np.ceil)),
    "cvt.f32.bf16": _row("bf16", "f32", _same),
    "cvt.f32.f16": _row("f16", "f32", _same),
    "cvt.rn.f32.s32": _row("s32", "f32", lambda x: x.astype(np.float32)),
    "cvt.rn.bf16x2.f32": _row("f32 f32", "b32", _bf16_pair),
    "cvt.rn.f16x2.e4m3x2": _row("b16", "b32", _fp16_pair),
    "cvt.s64.s32": _row("s32", "s64", lambda x: x.astype(np.int64)),
    "cvt.u64.u32": _row("u32", "u64", lambda x: x.astype(np.uint64)),
    "cvt.u32.u64": _row("u64", "u32", lambda x: x.astype(np.uint32)),
    "cvt.u16.u32": _row("u32", "u16", lambda x: x.astype(np.uint16)),
    "bfe.u32": _row("u32 u32 u32", "u32", lambda a, at, n: (a >> at) & ((np.uint32(1) << n) - np.uint32(1))),
    "div.s32": _row("s32 s32", "s32", lambda a, b: _quotient(a, b).astype(np.int32)),
    "rem.s32": _row("s32 s32", "s32", lambda a, b: (a - _quotient(a, b) * b).astype(np.int32)),
}
_function: Function
for _kind in ("s32", "u32", "s64", "u64"):
    for _op, _function in (("add", np.add), ("sub", np.subtract), ("min", np.minimum), ("max", np.maximum)):
        TABLE[f"{_op}.{_kind}"] = _row(f"{_kind} {_kind}", _kind, _function)
    TABLE[f"mul.lo.{_kind}"] = _row(f"{_kind} {_kind}", _kind, np.multiply)
    TABLE[f"mad.lo.{_kind}"] = _row(f"{_kind} {_kind} {_kind}", _kind, lambda a, b, c: a * b + c)
for _kind in ("s32", "u32"):
    TABLE[f"mul.wide.{_kind}"] = _row(f"{_kind} {_kind}", "u64", _wide)
    TABLE[f"mad.wide.{_kind}"] = _row(f"{_kind} {_kind} u64", "u64", lambda a, b, c: _wide(a, b) + c)
for _kind in ("pred", "b16", "b32", "b64"):
    for _op, _function in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        TABLE[f"{_op}.{_kind}"] = _row(f"{_kind} {_kind}", _kind, _function)
    TABLE[f"not.{_kind}"] = _row(_kind, _kind, np.invert)
for _kind in ("b32", "b64", "u32", "s32", "u64", "s64"):
    if _kind[0] == "b":
        TABLE[f"shl.{_kind}"] = _row(f"{_kind} u32", _kind, _shift_left(int(_kind[1:])))
    else:
        TABLE[f"shr.{_kind}"] = _row(f"{_kind} u32", _kind, _shift_right(int(_kind[1:])))
# Comparisons with a NaN are false, that for unequal included.
_COMPARISONS = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
for _kind in ("b16", "b32", "b64", "s16", "u16", "s32", "u32", "s64", "u64", "f32"):
    for _op, _function in _COMPARISONS.items():
        TABLE[f"setp.{_op}.{_kind}"] = _row(f"{_kind} {_kind}", "pred", _function)
    TABLE[f"setp.ne.{_kind}"] = _row(f"{_kind} {_kind}", "pred", lambda a, b: (a < b) | (a > b))
for _kind in ("b16", "b32", "b64", "f32"):
    TABLE[f"selp.{_kind}"] = _row(f"{_kind} {_kind} pred", _kind, _chosen)
for _kind in ("pred", "b16", "u16", "b32", "u32", "s32", "f32", "b64", "u64", "s64"):
    TABLE[f"mov.{_kind}"] = _row(_kind, _kind, _same)

Handler = Callable[[State, Mask], None]


def decode(instruction: Instruction, program: Program) -> Handler | None:
    """What the instruction does to a warpgroup's registers; None if it is no arithmetic."""
    operands = instruction.operands
    if instruction.op in ("mov.b32", "mov.b64") and any(operand.startswith("{") for operand in operands):
        return _repacked(instruction, program)
    if instruction.op not in TABLE:
        return None
    kinds, result, function = TABLE[instruction.op]
    if len(operands) != 1 + len(kinds):
        raise UnknownInstructionError(f"{instruction.text}: {len(operands)} operands, not {1 + len(kinds)}")
    read = [reader(operand, kind, program) for operand, kind in zip(operands[1:], kinds, strict=True)]
    write = writer(operands[0], result, program)
    return lambda state, active: write(state, function(*(each(state) for each in read)), active)


def _repacked(instruction: Instruction, program: Program) -> Handler:
    """``mov`` between one register and two of half its width, the lower half first."""
    to, source = instruction.operands
    whole, half = ("b32", "b16") if instruction.op == "mov.b32" else ("b64", "b32")
    bits = int(half[1:])
    halves = members(to if to.startswith("{") else source)
    if len(halves) != 2 or (to.startswith("{") and source.startswith("{")):
        raise UnknownInstructionError(instruction.text)
    if to.startswith("{"):
        read = reader(source, whole, program)
        # A half that nobody wants is written as _.
        writes = [(n, writer(name, half, program)) for n, name in enumerate(halves) if name != "_"]

        def split(state: State, active: Mask) -> None:
            value = read(state).astype(np.uint64)
            for n, write in writes:
                write(state, (value >> np.uint64(n * bits)) & np.uint64(2**bits - 1), active)

        return split
    low, high = (reader(name, half, program) for name in halves)
    write = writer(to, whole, program)
    return lambda state, active: write(
        state, low(state).astype(np.uint64) | (high(state).astype(np.uint64) << np.uint64(bits)), active
    )
