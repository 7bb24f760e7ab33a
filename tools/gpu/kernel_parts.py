#!/usr/bin/env python3
"""Which launch of a call takes how long: python3 tools/gpu/kernel_parts.py [PART OF A SHAPE'S KEY ...]

For the shapes that have a bar, ours and the peers that are installed: the mean time of each kernel that a call launches, from
torch's profiler, with the L2 flushed before each call. What a graph's replay takes beyond their sum is launches and gaps. Not
for figures: pytest -m kernelbench times. A call whose output was not looked at elsewhere is not right because it is listed here.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "tests"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
from kernelbench.inputs import make  # noqa: E402
from kernelbench.peers import implementations, missing  # noqa: E402

from perfgate.kernelbench.bars import quick_shapes  # noqa: E402

CALLS = 20
FLUSH_BYTES = 256 << 20


def parts(call: Any, device: torch.device) -> dict[str, list[float]]:
    """Microseconds of each launch of each kernel, by its name, over CALLS calls."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    call()
    call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            flush.random_()  # no other kernel has its name
            call()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = defaultdict(list)
    for event in profile.events():
        if "random" not in event.name and event.device_type == torch.autograd.DeviceType.CUDA:
            times[event.name].append(event.device_time)
    return times


def main(wanted: list[str]) -> int:
    device = torch.device("cuda")
    for shape in sorted(quick_shapes(), key=lambda one: one.key):
        if wanted and not any(part in shape.key for part in wanted):
            continue
        inputs = make(shape, 0, device)
        for one in implementations(shape):
            if why := missing(one):
                print(f"{shape.key}  {one.name}: {why[:80]}")
                continue
            try:
                times = parts(one.make(inputs), device)
            except Exception as fault:  # the others are wanted, whatever becomes of this one
                print(f"{shape.key}  {one.name}: {type(fault).__name__}: {str(fault)[:120]}", flush=True)
                continue
            total = sum(map(sum, times.values())) / CALLS
            print(f"{shape.key}  {one.label or one.name}: {total:.1f} us", flush=True)
            for name, each in sorted(times.items(), key=lambda item: -sum(item[1])):
                print(f"    {sum(each) / CALLS:8.1f}  {len(each) / CALLS:4.1f} launches  {name[:90]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
