"""Every shape on every implementation: timed by graph replay, and counted only if the replays' output is right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernelbench import card as cards
from kernelbench.body import Trial
from kernelbench.peers import Implementation

from perfgate.kernelbench.bars import MINE
from perfgate.kernelbench.shapes import Shape, describe
from perfgate.kernelbench.timing import BLOCKS, REPLAYS, gpu_seconds

CHECKED = {True: "the references, within the correctness suite's bounds", False: "the references, as the same function"}


@pytest.mark.kernelbench
@pytest.mark.benchmark(timer=gpu_seconds)
def test_speed(
    shape: Shape, implementation: Implementation, card: torch.device, facts: dict[str, Any], benchmark: Any
) -> None:
    ours = implementation.name in MINE
    label = implementation.label or implementation.name
    benchmark.group, benchmark.name, benchmark.params = shape.key, label, describe(shape)
    why = ""
    try:
        trial = Trial(shape, implementation, card)
        benchmark.pedantic(trial.replay, rounds=REPLAYS)
        trial.verify()
    except Exception as fault:
        # What was timed does not count: neither in the stored file nor in the table.
        benchmark.has_error = True
        if benchmark.stats is not None:
            benchmark.stats.stats.data.clear()
        if ours:
            raise
        why = f"{type(fault).__name__}: {(str(fault).splitlines() or [''])[0][:160]}"
    if why:
        # Outside of the handler, whose traceback would keep the memory of a peer that ran out of it.
        facts["faults"][f"{shape.key} {label}"] = why
        pytest.xfail(f"a peer, not this project's kernel: {label}: {why}")
    state = cards.state(trial, card)
    benchmark.extra_info.update(
        shape=describe(shape),
        implementation=implementation.name,
        label=label,
        checked=CHECKED[ours],
        blocks=[at * BLOCKS // REPLAYS for at in range(REPLAYS)],
        sm_mhz=state.sm_mhz,
        throttled=list(state.throttled),
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        clocks_read_by=state.read_by,
    )
