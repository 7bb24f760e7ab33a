"""What the fingerprint says of a pair of GPUs: an NVLink pair and a PCIe pair are not the same machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gpu_kit import FakeNvml, NvmlError

from perfgate import fingerprint, gpu
from perfgate.baseline.differences import differences
from perfgate.gpu_choice import Only

BASELINES = Path(__file__).parents[2] / "baselines"
SWITCH, BRIDGE = 2, 0


class Linked(FakeNvml):
    """GPUs with NVLinks. ``ends`` gives for each GPU what each of its links ends at: a GPU's number, "switch", or None (off)."""

    def __init__(self, *ends: list[Any], p2p: int = 0, nvlink_p2p: int = 0, untold: str = "") -> None:
        super().__init__(gpus=len(ends))
        self.ends, self.p2p, self.nvlink_p2p, self.untold = ends, p2p, nvlink_p2p, untold

    def __getattribute__(self, name: str) -> Any:
        if name == super().__getattribute__("__dict__").get("untold"):
            return self._refuse
        return super().__getattribute__(name)

    def _refuse(self, *unused: Any) -> Any:
        raise NvmlError("Not Supported")

    def nvmlDeviceGetNvLinkState(self, device: int, link: int) -> int:
        if link >= len(self.ends[device]):
            raise NvmlError("Invalid Argument")
        return int(self.ends[device][link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, device: int, link: int) -> int:
        return SWITCH if self.ends[device][link] == "switch" else BRIDGE

    def nvmlDeviceGetNvLinkRemotePciInfo(self, device: int, link: int) -> Any:
        end = self.ends[device][link]
        return SimpleNamespace(domain=0, bus=200 if end == "switch" else end, device=0)

    def nvmlDeviceGetPciInfo(self, device: int) -> Any:
        return SimpleNamespace(domain=0, bus=device, device=0)

    def nvmlDeviceGetP2PStatus(self, one: int, other: int, what: int) -> int:
        assert isinstance(what, int)  # the real one takes nothing else
        return {0: self.p2p, 2: self.nvlink_p2p}[what]


def link(nvml: Any) -> Any:
    return gpu.describe(nvml)[0]["topology"]


def test_a_pair_on_an_nvswitch_is_not_a_pair_on_pcie() -> None:
    switched = Linked(["switch"] * 18, ["switch"] * 18)
    pcie = Linked([None] * 18, [None] * 18, nvlink_p2p=5)
    assert link(switched) == ["system; 18 NVLinks through switches; P2P over NVLink"]
    assert link(pcie) == ["system; no NVLink; P2P over PCIe"]
    one, other = (fingerprint.collect({}, gpu.describe(nvml)) for nvml in (switched, pcie))
    (said,) = differences(one, other)
    assert said.startswith("hardware.gpu_topology: ")


def test_a_link_that_is_down_is_another_machine() -> None:
    assert "17 NVLinks through switches" in link(Linked(["switch"] * 17 + [None], ["switch"] * 18))[0]


def test_bridges_are_counted_to_the_gpu_that_they_reach() -> None:
    nvml = Linked([1, 1, 1, 1, 2, 2], [0, 0, 0, 0], [0, 0])
    assert [one.split("; ")[1] for one in link(nvml)] == ["4 NVLinks", "2 NVLinks"]
    assert [one["topology"][-1].split("; ")[1] for one in gpu.describe(nvml)] == ["2 NVLinks", "no NVLink", "no NVLink"]


def test_a_link_to_a_gpu_that_the_run_does_not_use_connects_none_of_its_own() -> None:
    nvml = Linked([2, 2], [], [0, 0])
    assert gpu.describe(Only(nvml, (0, 1)))[0]["topology"] == ["system; no NVLink; P2P over NVLink"]


@pytest.mark.parametrize(
    ("status", "said"),
    [(1, "no P2P (chipset)"), (4, "no P2P (driver setting)"), (5, "no P2P (not supported)"), (6, "P2P unknown")],
)
def test_why_a_gpu_does_not_reach_the_others_memory_is_told(status: int, said: str) -> None:
    assert link(Linked([None], [None], p2p=status))[0].endswith(f"; {said}")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nvmlDeviceGetTopologyCommonAncestor", "unknown; 18 NVLinks through switches; P2P over NVLink"),
        ("nvmlDeviceGetNvLinkState", "system; NVLink unknown; P2P over NVLink"),
        ("nvmlDeviceGetNvLinkRemoteDeviceType", "system; NVLink unknown; P2P over NVLink"),
        ("nvmlDeviceGetNvLinkRemotePciInfo", "system; 18 NVLinks through switches; P2P over NVLink"),
        ("nvmlDeviceGetPciInfo", "system; 18 NVLinks through switches; P2P over NVLink"),
        ("nvmlDeviceGetP2PStatus", "system; 18 NVLinks through switches; P2P unknown"),
    ],
)
def test_every_question_may_stay_unanswered(function: str, said: str) -> None:
    assert link(Linked(["switch"] * 18, ["switch"] * 18, untold=function)) == [said]


@pytest.mark.parametrize("function", ["nvmlDeviceGetNvLinkRemotePciInfo", "nvmlDeviceGetPciInfo"])
def test_where_a_bridge_ends_may_stay_untold_and_does_not_read_like_none(function: str) -> None:
    assert link(Linked([1], [0], untold=function)) == ["system; NVLink unknown; P2P over NVLink"]


def test_a_bridge_whose_kind_is_not_told_is_known_by_where_it_ends() -> None:
    nvml = Linked([1, 1], [0, 0], untold="nvmlDeviceGetNvLinkRemoteDeviceType")
    assert link(nvml) == ["system; 2 NVLinks; P2P over NVLink"]


def test_a_binding_without_these_questions_describes_its_gpus_all_the_same() -> None:
    assert link(FakeNvml(gpus=2)) == ["system; NVLink unknown; P2P unknown"]


@pytest.mark.parametrize("make", [lambda: FakeNvml(), lambda: Linked(["switch"] * 18)])
def test_a_single_gpus_stored_baselines_stay_comparable(make: Callable[[], FakeNvml]) -> None:
    stored = json.loads((BASELINES / "v4mini-stock" / "1x-nvidia-h200.json").read_text(encoding="utf-8"))
    (known,) = {json.dumps(p["provenance"]["fingerprint"]["hardware"]) for p in stored["points"].values()}
    found = fingerprint.collect({}, gpu.describe(make()))["hardware"]
    assert found.keys() == json.loads(known).keys()
    assert found["gpu_topology"] == json.loads(known)["gpu_topology"]
