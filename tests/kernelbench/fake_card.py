"""A pytest plug-in (``-p kernelbench.fake_card``) that puts a card that isn't there in the place of the GPU.

The kernels run for real, interpreted, and their outputs are checked for real; the times are made up, and say so. FAKE_CARD
is JSON: ``slower`` {kernel: factor}, ``wrong`` (a kernel whose output is spoiled), ``lost`` (a shape's key that the suite
no longer times), ``gone`` (true: a test that fails takes the card with it), ``late`` (a kernel by whose first test all time is
spent), ``mhz``, ``copy`` (bytes a second), ``seed`` of the noise.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import pytest
import torch
from kernelbench import body, card, inputs, peers
from kernelbench.session import BEGAN

from perfgate.kernelbench import bars, clock_watch, shapes, timing

SETTINGS = json.loads(os.environ.get("FAKE_CARD", "{}"))
TINY = (shapes.DecodeShape(1, 16, 64, 0), shapes.TopKShape(1, 600))
NAME = "Card That Is Not There"

kept = tuple(shape for shape in TINY if shape.key != SETTINGS.get("lost"))
shapes.every_shape = lambda: kept
bars.quick_shapes = lambda: frozenset(kept)
inputs.SETS = 2

FINGERPRINT = {
    "hardware": {"gpus": 1, "gpu_name": NAME, "gpu_driver": "1.0"},
    "software": {"torch": "2", "triton": SETTINGS.get("triton", "3")},
}
RATES = {"bytes": SETTINGS.get("copy", 4e12), "bf16": 7e14, "fp8": 1.4e15, "floor_us": 2.0, "source": "made up"}
card.visible = lambda: True
card.device = lambda: torch.device("cpu")
card.facts = lambda device: {"fingerprint": FINGERPRINT, "rates": RATES}
card.lost = lambda device: bool(SETTINGS.get("gone"))
card.watcher = lambda device: lambda busy: clock_watch.State(SETTINGS.get("mhz", 1980), read_by="nobody", top_mhz=1980)

# Peers that are installed here would be imported, which takes a minute, and cannot run.
peers.absent = lambda module: f"{module} is not looked for"

noise = random.Random(SETTINGS.get("seed", 0))
_make = dict(zip(("decode", "topk"), (peers.DECODE, peers.TOPK), strict=True))


def _spoiled(call: Any) -> Any:
    def spoil() -> Any:
        result = call()
        first = timing.tensors(result)[0]
        first.reshape(-1)[0] += 1
        return result

    return spoil


class FakeReplayer(timing.Replayer):
    """Runs each call once after each capture; every further replay only lets made-up time pass."""

    def once(self) -> None:
        if self._next < len(self._calls):
            self._run_in_place()
        else:
            self._next += 1
        timing._Clock.seconds += 1e-5 * SETTINGS.get("slower", {}).get(_kernel(), 1.0) * noise.gauss(1.0, 0.005)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    late = SETTINGS.get("late")
    if late and f"[{late}" in item.name:
        item.config.stash[BEGAN] -= 10_000


def _kernel() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").partition("[")[2].partition("-")[0]


body.Replayer = FakeReplayer
if (kernel := SETTINGS.get("wrong")) in _make:
    ours = _make[kernel][0]
    broken = replace(ours, make=lambda given: _spoiled(ours.make(given)))
    setattr(peers, kernel.upper(), (broken, *_make[kernel][1:]))
if SETTINGS.get("peer_fails"):

    def _refuse(given: Any) -> Any:
        raise RuntimeError("this peer takes no such shape")

    peers.TOPK = (peers.TOPK[0], replace(peers.TOPK[-1], make=_refuse))
