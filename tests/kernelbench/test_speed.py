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
from perfgate.kernelbench.timing import BLOCKS, REPLAYS, TooSlow, gpu_seconds


@pytest.mark.kernelbench
@pytest.mark.benchmark(timer=gpu_seconds)
def test_speed(
    shape: Shape,
    implementation: Implementation,
    card: torch.device,
    facts: dict[str, Any],
    peer_seconds: float,
    benchmark: Any,
    request: pytest.FixtureRequest,
) -> None:
    ours = implementation.name in MINE
    label = implementation.label or implementation.name
    benchmark.group, benchmark.name, benchmark.params = shape.key, label, describe(shape)
    why = ""
    try:
        trial = Trial(shape, implementation, card, cards.watcher(card), None if ours else peer_seconds)
        benchmark.pedantic(trial.replay, rounds=REPLAYS)
        trial.verify()
    except TooSlow as fault:
        benchmark.has_error = True
        facts["absent"][f"{shape.key} {label}"] = why = str(fault)
    except Exception as fault:
        # What was timed does not count: neither in the stored file nor in the table.
        benchmark.has_error = True
        if benchmark.stats is not None:
            benchmark.stats.stats.data.clear()
        why = f"{type(fault).__name__}: {(str(fault).splitlines() or [''])[0][:160]}"
        if cards.lost(card):
            # Which kernel did it is not known, and whatever came next would be called wrong.
            facts["faults"][f"{shape.key} {label}"] = why
            request.session.shouldfail = why = (
                f"the GPU is lost to this process since {shape.key} {label} or before: {why}"
            )
            pytest.fail(why, pytrace=False)
        if ours:
            facts["wrong"][shape.key] = f"{label}: {why}"
            raise
        facts["faults"][f"{shape.key} {label}"] = why
    if why:
        # Outside of the handlers, whose traceback would keep the memory of a peer that ran out of it.
        pytest.xfail(f"a peer, not this project's kernel: {label}: {why}")
    state = trial.state
    benchmark.extra_info.update(
        shape=describe(shape),
        implementation=implementation.name,
        label=label,
        checked=implementation.held_to,
        blocks=[at * BLOCKS // REPLAYS for at in range(REPLAYS)],
        sm_mhz=state.sm_mhz,
        top_mhz=state.top_mhz,
        throttled=list(state.throttled),
        noted=list(state.noted),
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        clocks_read_by=state.read_by,
    )
