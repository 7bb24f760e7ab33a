"""wgmma in the PTX emulator: known matrices in every layout that it knows, and what must come before and after a product."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "correctness"))

from ptx.errors import EmulationError, MissingFenceError, RaceError, UnknownInstructionError
from ptx.formats import from_bf16, to_bf16
from ptx_kit import LANES, copy_to_shared, run

BASE = 1024  # where shared memory starts
FENCE = "fence.proxy.async.shared::cta;"
FIRST = "wgmma.fence.sync.aligned;"
WAIT = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def random_matrix(rows: int, columns: int, seed: int) -> np.ndarray:
    """Small integers, so that sums are exact."""
    return np.random.default_rng(seed).integers(-8, 9, (rows, columns)).astype(np.float32)


def swizzled(matrix: np.ndarray) -> np.ndarray:
    """[rows, 64] as bytes of shared memory: of row r, 128 bytes, the 16 bytes number c lie at number c ^ r % 8."""
    pieces = to_bf16(matrix).reshape(-1, 8, 8, 8)
    rows = [pieces[:, row, np.arange(8) ^ row] for row in range(8)]
    return np.stack(rows, 1).reshape(-1).view(np.uint8)


def panels(matrix: np.ndarray) -> np.ndarray:
    """[16k, n] with n along the rows: 64 columns after another, each swizzled."""
    return np.concatenate([swizzled(matrix[:, at : at + 64]) for at in range(0, matrix.shape[1], 64)])


def descriptor(at: int, leading: int, stride: int) -> int:
    """Start, leading and stride byte offsets without their last four bits, and 1 in bits 62 and 63: 128-byte swizzle."""
    return (BASE + at) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 62


def product(n: int, a: str, b: int, transposed: int, add: int) -> str:
    """One product; ``a``: a descriptor or registers. Its sums are %r100 and on."""
    sums = ",".join(f"%r{100 + at}" for at in range(n // 2))
    in_registers = a.startswith("{")
    left, layouts = (a, transposed) if in_registers else ("%rd20", f"0, {transposed}")
    operands = f"{{{sums}}}, {left}, %rd21, %p5, 1, 1, {layouts}"
    described = "" if in_registers else f"mov.b64 %rd20, {a};"
    op = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16"
    return f"{described} mov.b64 %rd21, {b}; mov.pred %p5, {add}; {op} {operands};"


def kept(n: int) -> str:
    """Every lane's n / 2 sums to the output, one after the other."""
    where = f"mul.wide.u32 %rd22, %r0, {2 * n}; add.s64 %rd22, %rd1, %rd22;"
    return where + "".join(f"st.global.b32 [%rd22+{4 * at}], %r{100 + at};" for at in range(n // 2))


def as_matrix(words: np.ndarray, n: int) -> np.ndarray:
    """[64, n] from what the lanes hold: a warp has 16 rows, four lanes a row, a lane pairs of columns in rows 8 apart."""
    held, out = words.view(np.float32).reshape(LANES, n // 2), np.full((64, n), np.nan, np.float32)
    for lane in range(LANES):
        for at in range(n // 2):
            row = 16 * (lane // 32) + lane % 32 // 4 + 8 * (at % 4 // 2)
            out[row, 8 * (at // 4) + 2 * (lane % 4) + at % 2] = held[lane, at]
    return out


@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("transposed", [0, 1])
def test_products_of_known_matrices_in_shared_memory(n, transposed):
    a, b = random_matrix(64, 64, 1), random_matrix(64, n, 2)
    image = np.concatenate([swizzled(a), panels(b) if transposed else swizzled(b.T)])
    body = [copy_to_shared(len(image)), FENCE, "bar.sync 0, 128;", FIRST]
    for step in range(4):
        # Along K 16 values are 32 bytes of a row, or, transposed, 16 rows.
        at = 64 * 128 + step * (16 * 128 if transposed else 32)
        right = descriptor(at, 64 * 128 if transposed else 0, 1024)
        body.append(product(n, str(descriptor(step * 32, 0, 1024)), right, transposed, int(step > 0)))
    got = run("\n".join([*body, WAIT, kept(n)]), image, LANES * n // 2, shared=len(image))
    np.testing.assert_array_equal(as_matrix(got, n), a @ b)


def test_a_product_with_its_left_operand_in_registers():
    b = random_matrix(16, 64, 3)
    # Every lane's four registers hold pairs that say which they are: 4 lane + register, and half of it.
    registers = "".join(
        f"mad.lo.s32 %r30, %r0, 4, {at}; and.b32 %r30, %r30, 63; cvt.rn.f32.s32 %r30, %r30; mul.f32 %r31, %r30, 0f3F000000;"
        f" cvt.rn.bf16x2.f32 %r{40 + at}, %r31, %r30;"
        for at in range(4)
    )
    a = np.zeros((64, 16), np.float32)
    for lane in range(LANES):
        for at in range(4):
            row, column = 16 * (lane // 32) + lane % 32 // 4 + 8 * (at % 2), 2 * (lane % 4) + 8 * (at // 2)
            a[row, column : column + 2] = (4 * lane + at) % 64, (4 * lane + at) % 64 / 2
    product_of = product(64, "{%r40,%r41,%r42,%r43}", descriptor(0, 8192, 1024), 1, 0)
    body = [copy_to_shared(2048), FENCE, "bar.sync 0, 128;", registers, FIRST, product_of, WAIT, kept(64)]
    got = run("\n".join(body), panels(b), LANES * 32, shared=2048)
    np.testing.assert_array_equal(as_matrix(got, 64), from_bf16(to_bf16(a)) @ b)


def test_stmatrix_stores_a_fragment_row_by_row():
    # Lane l of a warp gives the address of row l; a register holds the pair (4 lane + register, the same + 1000).
    values = "".join(
        f"mad.lo.s32 %r{40 + at}, %r0, 4, {at}; mad.lo.s32 %r{40 + at}, %r{40 + at}, 65536, 0;" for at in range(4)
    )
    body = (
        values + "shl.b32 %r10, %r0, 4; add.s32 %r10, %r3, %r10;"
        " stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r10], {%r40, %r41, %r42, %r43}; bar.sync 0, 128;"
        " ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r10]; shl.b32 %r11, %r0, 4; cvt.u64.u32 %rd9, %r11;"
        " add.s64 %rd9, %rd1, %rd9; st.global.v4.b32 [%rd9], {%r20, %r21, %r22, %r23};"
    )
    rows = run(body, words=4 * LANES, shared=2048).reshape(4, 4, 8, 4) >> 16
    for warp in range(4):
        for matrix in range(4):
            for row in range(8):
                lanes = 32 * warp + 4 * row + np.arange(4)
                np.testing.assert_array_equal(rows[warp, matrix, row], 4 * lanes + matrix)


ONE = product(64, str(descriptor(0, 0, 1024)), descriptor(0, 0, 1024), 0, 0)
LEGAL = {
    "copy": copy_to_shared(8192),
    "fence": FENCE,
    "barrier": "bar.sync 0, 128;",
    "first": FIRST,
    "product": ONE,
    "wait": WAIT,
}
USE = {"use": "mul.f32 %r99, %r100, %r100;"}


def assembled(parts: dict[str, str]) -> str:
    return "\n".join(parts.values())


def run_one(parts: dict[str, str]) -> None:
    run(assembled(parts), swizzled(random_matrix(64, 64, 1)), shared=8192)


@pytest.mark.parametrize(
    ("missing", "error", "what"),
    [
        ("copy", EmulationError, "nothing has written"),
        ("fence", MissingFenceError, "without a fence"),
        ("barrier", RaceError, "read by wgmma"),
        ("first", EmulationError, "wgmma.fence"),
        ("wait", EmulationError, "while wgmma computes it"),
    ],
)
def test_whatever_is_missing_around_a_product_is_noticed(missing, error, what):
    run_one(LEGAL | USE)
    with pytest.raises(error, match=what):
        run_one(LEGAL | USE | {missing: ""})


def test_a_fence_counts_only_for_what_was_written_before_it_and_told_after_it():
    swapped = {name: LEGAL[name] for name in ("copy", "barrier", "fence", "first", "product", "wait")}
    with pytest.raises(MissingFenceError):
        run_one(swapped)
    with pytest.raises(MissingFenceError):
        run_one({"fence": FENCE} | {name: part for name, part in LEGAL.items() if name != "fence"})


def test_the_readers_fence_does_not_stand_for_the_writers():
    write = "setp.eq.b32 %p6, %r2, 0; @!%p6 bra $MEET;" + copy_to_shared(8192)
    read = f"$MEET: barrier.sync 1; @%p6 bra $END; {FENCE} bar.sync 2, 128; {FIRST} {ONE} {WAIT} $END: nop;"
    given = swizzled(random_matrix(64, 64, 1))
    run(write + FENCE + read, given, groups=2, shared=8192)
    with pytest.raises(MissingFenceError):
        run(write + read, given, groups=2, shared=8192)


@pytest.mark.parametrize(
    ("after", "what"),
    [
        ("st.shared.v4.b32 [%r10], {%r11, %r12, %r13, %r14};", "while wgmma reads it"),
        ("mov.b32 %r100, 0; " + WAIT, "was written while wgmma computed it"),
        ("ret;", "before it has waited"),
    ],
)
def test_a_product_in_flight_is_left_alone(after, what):
    with pytest.raises(EmulationError, match=what):
        run_one(LEGAL | {"wait": "", "after": after})


def test_a_left_operand_in_registers_is_left_alone_until_the_product_is_over():
    zeros = "".join(f"mov.b32 %r{40 + at}, 0;" for at in range(4))
    of_registers = product(64, "{%r40,%r41,%r42,%r43}", descriptor(0, 8192, 1024), 1, 0)
    parts = LEGAL | {"first": zeros + FIRST, "product": of_registers}
    run_one(parts | {"after": "mov.b32 %r41, 1;"})
    with pytest.raises(EmulationError, match=r"%r41 was written while wgmma read it"):
        run_one(parts | {"wait": "mov.b32 %r41, 1;" + WAIT})


def test_sums_that_were_touched_need_another_fence():
    again = ONE.replace("mov.pred %p5, 0", "mov.pred %p5, 1")
    run_one(LEGAL | {"again": FIRST + again, "over": WAIT})
    with pytest.raises(EmulationError, match=r"no wgmma\.fence followed"):
        run_one(LEGAL | {"again": again, "over": WAIT})


@pytest.mark.parametrize("swizzle", [0, 2, 3])
def test_another_swizzle_is_refused(swizzle):
    other = ONE.replace(str(descriptor(0, 0, 1024)), str(descriptor(0, 0, 1024) & (2**62 - 1) | swizzle << 62))
    with pytest.raises(UnknownInstructionError, match="descriptor"):
        run_one(LEGAL | {"product": other})
