"""The card that is measured on: all that the tier asks of it stands here, so that a test can put another in its place."""

from __future__ import annotations

from typing import Any

import torch
from kernelbench.body import Watch

from perfgate.kernelbench import clock_watch, machine, rates


def visible() -> bool:
    """Whether there is a GPU to measure on."""
    return torch.cuda.is_available()


def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def facts(device: torch.device) -> dict[str, Any]:
    """Its fingerprint, and its rates as measured now."""
    return {"fingerprint": machine.fingerprint(device.index), "rates": rates.measure(device)}


def lost(device: torch.device) -> bool:
    """Whether a fault has ended this process's use of it: an illegal address or a failed assertion in some kernel, now or before."""
    try:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def watcher(device: torch.device) -> Watch:
    """Reads its clocks and throttling while it goes on replaying a trial."""
    return lambda busy: clock_watch.watch(busy, device.index)
