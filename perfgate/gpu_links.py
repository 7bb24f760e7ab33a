"""How the GPUs of a host reach each other: PCIe, NVLink, peer access, in words for the fingerprint (edge, on NVML).

Every question may stay unanswered: an old binding lacks the function, and an old driver, a virtual machine or a card without
NVLink the answer. What is not told reads ``unknown``, and never like what was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS. To ask for one that a GPU does not have is an error, so there is no harm in asking for them all."""

GPU, SWITCH = 0, 2
"""NVML_NVLINK_DEVICE_TYPE_*: what a link ends at. Through a switch it reaches every GPU on the switches."""

# NVML_P2P_CAPS_INDEX_READ and _NVLINK, as numbers: the binding's own READ is a tuple, by a comma too many.
READ, OVER_NVLINK = 0, 2

_ANCESTORS = {0: "internal", 10: "one switch", 20: "switches", 30: "host bridge", 40: "node", 50: "system"}
_NO_PEER = {1: "chipset", 2: "GPU", 3: "I/O hub", 4: "driver setting", 5: "not supported"}
"""NVML_P2P_STATUS_*: what stands in the way."""


Place = tuple[int, int, int] | None
"""Domain, bus and device of something on PCIe, where they are told."""


@dataclass(frozen=True)
class _Links:
    """A GPU's active NVLinks: how many end at a switch, and where the others end: at a GPU, or at what is not told."""

    switched: int
    ends: tuple[Place, ...]
    untold: tuple[Place, ...]


def topology(nvml: Any, devices: Sequence[Any]) -> list[list[str]]:
    """For each GPU its connection to each of the others, as ``system; 18 NVLinks through switches; P2P over NVLink``."""
    if len(devices) < 2:
        return [[] for _ in devices]
    links = [_links(nvml, device) for device in devices]
    places = [_place(_ask(nvml, "nvmlDeviceGetPciInfo", device)) for device in devices]
    return [
        [
            "; ".join((_pcie(nvml, one, other), _nvlinks(links[i], links[j], places[j]), _peer(nvml, one, other)))
            for j, other in enumerate(devices)
            if j != i
        ]
        for i, one in enumerate(devices)
    ]


def _links(nvml: Any, device: Any) -> _Links | None:
    states = [_ask(nvml, "nvmlDeviceGetNvLinkState", device, number) for number in range(MAX_LINKS)]
    if all(state is None for state in states):
        return None
    active = [number for number, state in enumerate(states) if state]
    kinds = [_ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", device, number) for number in active]
    places = [_place(_ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", device, number)) for number in active]
    return _Links(
        kinds.count(SWITCH),
        tuple(place for kind, place in zip(kinds, places, strict=True) if kind == GPU),
        tuple(place for kind, place in zip(kinds, places, strict=True) if kind not in (GPU, SWITCH)),
    )


def _nvlinks(one: _Links | None, other: _Links | None, there: Place) -> str:
    if one is None:
        return "NVLink unknown"
    direct = 0 if there is None else (one.ends + one.untold).count(there)
    switched = 0 if other is None else min(one.switched, other.switched)
    said = [f"{direct} NVLinks"] if direct else []
    said += [f"{switched} NVLinks through switches"] if switched else []
    untold = None in one.ends or one.untold or (there is None and one.ends) or (other is None and one.switched)
    return " and ".join(said) or ("NVLink unknown" if untold else "no NVLink")


def _pcie(nvml: Any, one: Any, other: Any) -> str:
    level = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other)
    return "unknown" if level is None else _ANCESTORS.get(level, str(level))


def _peer(nvml: Any, one: Any, other: Any) -> str:
    reads = _ask(nvml, "nvmlDeviceGetP2PStatus", one, other, READ)
    if reads == 0:
        nvlink = _ask(nvml, "nvmlDeviceGetP2PStatus", one, other, OVER_NVLINK)
        return "P2P over NVLink" if nvlink == 0 else "P2P over PCIe" if nvlink in _NO_PEER else "P2P"
    return f"no P2P ({_NO_PEER[reads]})" if reads in _NO_PEER else "P2P unknown"


def _place(pci: Any) -> Place:
    return None if pci is None else (pci.domain, pci.bus, pci.device)


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
