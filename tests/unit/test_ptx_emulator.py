"""The PTX emulator on instructions written by hand: what it computes, what it refuses, what it finds."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "correctness"))

from ptx.errors import BoundsError, DeadlockError, EmulationError, RaceError, UnknownInstructionError
from ptx.formats import E4M3_AS_FP16_BITS, from_bf16, to_bf16
from ptx_kit import LANES, run


def f32(value: float) -> str:
    return f"0f{np.float32(value).view(np.uint32):08X}"


NAN = f32(np.nan)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("shl.b32 %r4, 1, 32;", 0),
        ("shr.s32 %r4, -512, 32;", -1),
        ("shr.u32 %r4, -8, 1;", 0x7FFFFFFC),
        ("bfe.u32 %r4, 305419896, 4, 8;", 0x67),
        ("div.s32 %r4, -7, 2;", -3),
        ("rem.s32 %r4, -7, 2;", -1),
        ("min.s32 %r4, -7, 2;", -7),
        ("mad.lo.s32 %r4, 65536, 65536, 5;", 5),
        ("mul.wide.s32 %rd9, -2, 3; cvt.u32.u64 %r4, %rd9;", -6),
        ("mul.wide.u32 %rd9, -2, 2; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r4, %rd9;", 1),
        ("mov.b32 {%rs1, %rs2}, 305419896; mov.b32 %r4, {%rs2, %rs1};", 0x56781234),
        ("setp.ne.f32 %p1, " + NAN + ", 0f00000000; selp.b32 %r4, 1, 2, %p1;", 2),
        ("max.f32 %r4, " + NAN + ", " + f32(2) + ";", np.float32(2)),
        ("fma.rn.f32 %r4, " + f32(3) + ", " + f32(5) + ", " + f32(-1) + ";", np.float32(14)),
        ("ex2.approx.ftz.f32 %r4, " + f32(-127) + ";", np.float32(0)),
        ("mul.f32 %r4, " + f32(2.0**-127) + ", " + f32(2) + ";", np.float32(2.0**-126)),
        ("cvt.rpi.ftz.f32.f32 %r4, " + f32(-1.5) + ";", np.float32(-1)),
        ("cvt.rn.bf16x2.f32 %r4, " + f32(1) + ", " + f32(-2) + ";", 0x3F80C000),
        ("shfl.sync.bfly.b32 %r5, %r0, 2, 31, -1; shfl.sync.idx.b32 %r4, %r5, 5, 31, -1; and.b32 %r4, %r4, 31;", 7),
        ("elect.sync %r5|%p1, -1; selp.b32 %r4, 9, 0, %p1; shfl.sync.idx.b32 %r4, %r4, 0, 31, -1;", 9),
        ("{.reg .b32 x; mov.b32 x, 5; {.reg .b32 x; mov.b32 x, 6;} mov.b32 %r4, x;}", 5),
        ("mov.b32 %r4, 1; setp.eq.b32 %p1, %r4, 2; @%p1 mov.b32 %r4, 3; @!%p1 add.s32 %r4, %r4, 3;", 4),
    ],
)
def test_an_instruction_gives_what_the_manual_says(instruction, expected):
    bits = expected.view(np.uint32) if isinstance(expected, np.float32) else np.uint32(expected % 2**32)
    assert (run(instruction + " st.global.b32 [%rd2], %r4;") == bits).all()


def test_bf16_rounds_as_torch_does_and_fp8_has_its_values():
    values = np.random.default_rng(0).integers(0, 2**32, 5000, np.uint32).view(np.float32)
    ties = (np.arange(1000, dtype=np.uint32) * 65536 + 0x3F808000).view(np.float32)
    for each in (values[~np.isnan(values)], ties, np.array([np.inf, -np.inf, 0.0, -0.0], np.float32)):
        expected = torch.from_numpy(each.copy()).bfloat16().view(torch.int16).numpy().view(np.uint16)
        np.testing.assert_array_equal(to_bf16(each), expected)
    assert np.isnan(from_bf16(to_bf16(np.array([np.nan], np.float32)))).all()
    fp8 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(E4M3_AS_FP16_BITS.view(np.float16).astype(np.float32), fp8)


def test_lanes_that_branch_away_meet_the_others_again():
    got = run(
        "mov.b32 %r4, 1; setp.lt.u32 %p1, %r0, 40; @%p1 bra $L1; add.s32 %r4, %r4, 1;"
        " $L1: add.s32 %r4, %r4, 10; st.global.b32 [%rd2], %r4;"
    )
    np.testing.assert_array_equal(got, np.where(np.arange(LANES) < 40, 11, 12))


def test_a_loop_runs_as_often_as_it_says():
    assert (
        run(
            "mov.b32 %r4, 0; $L1: add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, 7; @%p1 bra $L1; st.global.b32 [%rd2], %r4;"
        )
        == 7
    ).all()


@pytest.mark.parametrize(
    "instruction",
    ["popc.b32 %r4, %r1;", "ld.global.nc.b32 %r4, [%rd0];", "add.rz.f32 %r4, %r1, %r1;", "bar.sync 0, 64;"],
)
def test_an_unknown_instruction_is_named_even_where_it_is_never_reached(instruction):
    with pytest.raises(UnknownInstructionError, match=instruction.split(maxsplit=1)[0].replace(".", r"\.")):
        run("bra.uni $L1; " + instruction + " $L1: nop;")


def test_a_register_of_another_width_is_refused():
    with pytest.raises(UnknownInstructionError, match="%rd2"):
        run("add.s32 %r4, %rd2, 1;")


@pytest.mark.parametrize(
    ("instruction", "what"),
    [
        ("ld.global.b32 %r4, [%rd0+4];", "outside"),
        ("ld.global.b32 %r4, [%rd0+-4];", "outside"),
        ("st.global.b32 [%rd0], %r0;", "a write"),
        ("ld.global.b32 %r4, [%rd0+2];", "multiple"),
        ("ld.shared.b32 %r4, [%r3+1024];", "shared"),
        ("cvt.u32.u64 %r9, %rd0; cvt.u64.u32 %rd9, %r9; ld.global.b32 %r4, [%rd9];", "outside"),
    ],
)
def test_an_access_outside_of_what_there_is_is_refused(instruction, what):
    with pytest.raises(BoundsError, match=what):
        run(instruction)


def test_a_register_that_nothing_wrote_is_refused():
    with pytest.raises(EmulationError, match="%r77"):
        run("add.s32 %r4, %r77, 1;")


# Each thread writes a word and reads that of the thread 32 on, which is another warp's.
PASS_ON = (
    "add.s32 %r5, %r3, %r1; st.shared.b32 [%r5], %r0; {} add.s32 %r6, %r1, 128; and.b32 %r6, %r6, 511;"
    " add.s32 %r6, %r3, %r6; ld.shared.b32 %r4, [%r6]; st.global.b32 [%rd2], %r4;"
)


def test_two_warps_are_ordered_by_a_barrier_and_race_without():
    np.testing.assert_array_equal(run(PASS_ON.format("bar.sync 0, 128;")), (np.arange(LANES) + 32) % LANES)
    with pytest.raises(RaceError, match="nothing orders"):
        run(PASS_ON.format(""))


def test_what_was_read_is_not_overwritten_without_a_barrier():
    again = " {} st.shared.b32 [%r5], %r4;"
    run(PASS_ON.format("bar.sync 0, 128;") + again.format("bar.sync 0, 128;"))
    with pytest.raises(RaceError, match="overwritten where it was read"):
        run(PASS_ON.format("bar.sync 0, 128;") + again.format(""))


# The first warpgroup writes 128 words and says so at an mbarrier, the second waits for it and reads them.
HANDED_OVER = """
setp.eq.b32 %p1, %r0, 0; add.s32 %r4, %r3, 512; @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; {init}
and.b32 %r5, %r1, 511; add.s32 %r5, %r3, %r5; setp.eq.b32 %p2, %r2, 0; @!%p2 bra $READ;
st.shared.b32 [%r5], %r0; {before} @%p1 mbarrier.arrive.shared::cta.b64 _, [%r4]; bra.uni $END;
$READ: {wait} ld.shared.b32 %r6, [%r5]; st.global.b32 [%rd2], %r6;
$END: nop;
"""
WAIT = "{.reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%r4], 0; @!done bra.uni again;}"
GOOD = {"init": "barrier.sync 1;", "before": "bar.sync 2, 128;", "wait": WAIT}


@pytest.mark.parametrize("seed", range(6))
def test_an_mbarrier_hands_over_what_its_arrivers_warps_did(seed):
    got = run(HANDED_OVER.format(**GOOD), words=2 * LANES, groups=2, seed=seed)
    np.testing.assert_array_equal(got[LANES:], np.arange(LANES))


@pytest.mark.parametrize("missing", ["init", "before", "wait"])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_missing_of_a_handover_is_noticed_in_every_interleaving(missing, seed):
    with pytest.raises(EmulationError):
        run(HANDED_OVER.format(**(GOOD | {missing: ""})), words=2 * LANES, groups=2, seed=seed)


def test_a_wait_that_nobody_ends_is_a_deadlock():
    with pytest.raises(DeadlockError, match="warpgroup 0 waits for Phase"):
        run(
            "add.s32 %r4, %r3, 0; setp.eq.b32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; bar.sync 0, 128;"
            + WAIT
        )
    with pytest.raises(DeadlockError, match="BlockBarrier"):
        run("setp.eq.b32 %p1, %r2, 0; @%p1 bra $L1; barrier.sync 1; $L1: nop;", groups=2)


def test_a_barrier_is_not_shared_by_two_warpgroups():
    with pytest.raises(EmulationError, match="two sets"):
        run("bar.sync 0, 128;", groups=2)
