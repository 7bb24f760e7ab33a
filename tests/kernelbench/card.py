"""The card that is measured on: all that the tier asks of it stands here, so that a test can put another in its place."""

from __future__ import annotations

from typing import Any

import torch
from kernelbench.body import Trial

from perfgate.kernelbench import machine, timing


def visible() -> bool:
    """Whether there is a GPU to measure on."""
    return torch.cuda.is_available()


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def facts(device: torch.device) -> dict[str, Any]:
    """Its fingerprint, and its rates as measured now."""
    return {"fingerprint": machine.fingerprint(device.index), "rates": timing.rates(device)}


def state(trial: Trial, device: torch.device) -> machine.State:
    """Its clocks and throttling while it goes on replaying a trial."""
    return machine.watch(trial.busy, device.index)
