"""The roofline's rates: the copy is the fastest of torch's and a kernel's, and a copy that is wrong is no rate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate.kernelbench import copy_kernel, rates, roofline
from perfgate.kernelbench.copy_kernel import TILES

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def us(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times that the next calls take, each of which is run once; 7 us where the list ends."""
    times: list[float] = []

    def median_us(calls: Any, device: Any, replays: int = 0) -> float:
        calls[0]()
        return times.pop(0) if times else 7.0

    monkeypatch.setattr(rates, "median_us", median_us)
    monkeypatch.setattr(rates, "COPIED", 4 * 2 * max(tile for tile, _ in TILES))
    monkeypatch.setattr(rates, "MATRIX", 64)
    return times


def test_the_copy_rate_is_that_of_the_fastest_copy_and_each_is_named(us: list[float]) -> None:
    us[:] = [6.5, 5.0, 4.0]
    found = rates.measure(DEVICE)
    bytes_moved = 2 * rates.COPIED
    assert found["copies"] == {
        "memcpy": pytest.approx(bytes_moved / 6.5e-6),
        "kernel of 2048": pytest.approx(bytes_moved / 5.0e-6),
        "kernel of 8192": pytest.approx(bytes_moved / 4.0e-6),
    }
    assert found["bytes"] == max(found["copies"].values())
    assert roofline.restore(json.loads(json.dumps(found))).copies == found["copies"]
    us[:] = [3.0, 5.0, 4.0]
    assert rates.measure(DEVICE)["bytes"] == pytest.approx(bytes_moved / 3.0e-6)


def test_matrix_rates_and_the_empty_graph_are_measured_too(us: list[float]) -> None:
    found = rates.measure(DEVICE)
    assert found["bf16"] == found["tf32"] == pytest.approx(2 * 64**3 / 7e-6)
    assert found["floor_us"] == 7.0
    assert ("fp8" in found) != ("fp8_fault" in found)
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("fault", ["wrong", "raises"])
def test_a_kernel_that_copies_wrongly_or_not_at_all_is_named_and_is_no_rate(
    us: list[float], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def copy(source: torch.Tensor, target: torch.Tensor, tile: int, warps: int) -> torch.Tensor:
        if fault == "raises":
            raise RuntimeError("no compiler\nmore")
        return target.zero_()

    monkeypatch.setattr(copy_kernel, "copy", copy)
    found = rates.measure(DEVICE)
    assert list(found["copies"]) == ["memcpy"]
    assert found["bytes"] == found["copies"]["memcpy"]
    assert (
        found["copy_fault"]
        == f"RuntimeError: {'no compiler' if fault == 'raises' else 'the kernel of 2048 copies wrongly'}"
    )
    assert roofline.restore(found).copy_fault == found["copy_fault"]


COMPILE = """
import json, re, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from perfgate.kernelbench.copy_kernel import TILES, perfgate_copy_kernel
found = {}
for card in (90, 120):
    for tile, warps in TILES:
        aligned = {(at,): [["tt.divisibility", 16]] for at in (0, 1)}
        signature = {"source": "*i32", "target": "*i32", "TILE": "constexpr"}
        source = ASTSource(perfgate_copy_kernel, signature, {"TILE": tile}, aligned)
        ptx = triton.compile(source, target=GPUTarget("cuda", card, 32), options={"num_warps": warps}).asm["ptx"]
        found[f"{card} {tile}"] = sorted(set(re.findall(r"(?:ld|st)[.]global[.a-z0-9]*", ptx)))
print(json.dumps(found))
"""


def test_the_kernels_loads_and_stores_are_of_sixteen_bytes_on_both_cards() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    child = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    found = json.loads(child.stdout)
    assert set(found) == {f"{card} {tile}" for card in (90, 120) for tile, _ in TILES}
    assert all(kinds == ["ld.global.v4.b32", "st.global.v4.b32"] for kinds in found.values()), found
