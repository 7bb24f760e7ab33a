"""Hand-written PTX for the emulator: a body of instructions in, what it leaves in global memory out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "correctness"))

from ptx.machine import Block
from ptx.memory import GlobalMemory
from ptx.parse import parse

LANES = 128
REGISTERS = (".reg .pred %p<20>;", ".reg .b16 %rs<20>;", ".reg .b32 %r<999>;", ".reg .b64 %rd<40>;")
# %r0: the thread's number; %r1: its lane times 4; %r2: its warpgroup; %rd0 and %rd1: the input's and the output's address;
# %rd2: where its own word of the output lies.
START = """
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; shr.u32 %r2, %r0, 7; mov.b32 %r3, global_smem;
ld.param.b64 %rd0, [k_param_0]; ld.param.b64 %rd1, [k_param_1];
cvt.u64.u32 %rd2, %r1; add.s64 %rd2, %rd1, %rd2;
"""


def run(
    body: str, given: np.ndarray | None = None, words: int = LANES, groups: int = 1, shared: int = 1024, seed: int = 0
) -> np.ndarray:
    """Run a body on ``groups`` warpgroups; return ``words`` 32-bit words of output, which start as 0xFFFFFFFF."""
    memory = GlobalMemory()
    source = memory.add(np.zeros(4, np.uint8) if given is None else np.ascontiguousarray(given).reshape(-1))
    out = memory.add(np.full(words, 0xFFFFFFFF, np.uint32), writable=True)
    program = parse("\n".join([*REGISTERS, START, body, "ret;"]))
    Block(program, 0, [source, out], memory, shared, groups).run(seed)
    return memory.contents(out, np.uint32, words)


def copy_to_shared(size: int) -> str:
    """Instructions of one warpgroup that copy ``size`` bytes of the input (a multiple of 2048) to shared memory."""
    lines = ["shl.b32 %r10, %r0, 4; cvt.u64.u32 %rd10, %r10; add.s64 %rd10, %rd0, %rd10; add.s32 %r10, %r3, %r10;"]
    for at in range(0, size, 16 * LANES):
        lines.append(f"ld.global.v4.b32 {{%r11, %r12, %r13, %r14}}, [%rd10+{at}];")
        lines.append(f"st.shared.v4.b32 [%r10+{at}], {{%r11, %r12, %r13, %r14}};")
    return "\n".join(lines)
