"""A run's hold on its GPUs: locked, free of strangers, given back before the next start, watched in each sample."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from gpu_kit import FakeNvml

from perfgate import gpu_choice, recipe
from perfgate.gpu import GpuError
from perfgate.gpu_guard import GpuGuard
from perfgate.gpu_watch import Watch

RECIPES = Path(__file__).parents[2] / "recipes"
ONE = recipe.load(RECIPES / "v4mini-patched.toml")
TWO = recipe.load(RECIPES / "v4mini-patched-tp2.toml")
CPU = recipe.load(RECIPES / "cpu-tiny.toml")
ME = os.getpid()
STRANGER = os.getppid()


def guard(nvml: FakeNvml, folder: Path, chosen: recipe.Recipe = ONE, **more: Any) -> GpuGuard:
    more = {"environment": {}, "memory_seconds": 0.0, "stranger_seconds": 0.0} | more
    return GpuGuard(chosen, open_nvml=lambda: nvml, lock_folder=folder, **more)


def test_a_recipe_without_a_gpu_touches_none(tmp_path: Path) -> None:
    def forbidden() -> Any:
        raise AssertionError("NVML was opened")

    with GpuGuard(CPU, open_nvml=forbidden, lock_folder=tmp_path) as held:
        held.before_start()
        assert held.watch() is None
        assert held.describe() == []


def test_a_process_that_is_not_ours_refuses_the_start_by_name(tmp_path: Path) -> None:
    with guard(FakeNvml(processes=[(0, STRANGER)]), tmp_path) as held, pytest.raises(GpuError, match=f"pid {STRANGER}"):
        held.before_start()


def test_a_server_of_an_earlier_run_that_is_still_leaving_does_not_refuse_the_start(tmp_path: Path) -> None:
    class Leaving(FakeNvml):
        def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:
            found = super().nvmlDeviceGetComputeRunningProcesses(device)
            return found if self.listed < 3 else []

    with guard(Leaving(processes=[(0, STRANGER)]), tmp_path, stranger_seconds=30.0) as held:
        held.before_start()


def test_our_own_server_does_not_refuse_the_second_side_of_an_ab(tmp_path: Path) -> None:
    nvml = FakeNvml(processes=[(0, ME)])
    with guard(nvml, tmp_path) as held:
        held.servers.append(lambda: {ME})
        held.before_start()


def test_two_runs_do_not_take_the_same_gpu(tmp_path: Path) -> None:
    with guard(FakeNvml(), tmp_path) as first:
        first.before_start()
        first.before_start()  # a second start of the same run holds its lock already
        with guard(FakeNvml(), tmp_path) as second, pytest.raises(GpuError, match="GPU-0aaa is locked"):
            second.before_start()
    with guard(FakeNvml(), tmp_path) as third:
        third.before_start()


def test_the_next_start_waits_for_the_memory_of_the_last(tmp_path: Path) -> None:
    nvml = FakeNvml()
    with guard(nvml, tmp_path) as held:
        held.before_start()
        nvml.free = [50_000]
        with pytest.raises(GpuError, match="GPU 0: 50000 of"):
            held.before_start()
        nvml.free = [99_700]
        held.before_start()


def test_only_the_gpus_that_the_recipe_uses_are_described_and_locked(tmp_path: Path) -> None:
    nvml = FakeNvml(gpus=4, processes=[(0, STRANGER)])
    with guard(nvml, tmp_path, TWO, environment={"CUDA_VISIBLE_DEVICES": "3,GPU-1"}) as held:
        held.before_start()  # the stranger's GPU is none of ours
        assert len(held.describe()) == 2
        assert sorted(p.name for p in tmp_path.iterdir()) == ["gpu-GPU-1aaa.lock", "gpu-GPU-3aaa.lock"]


@pytest.mark.parametrize(
    ("visible", "words"),
    [("", "needs 2 GPU"), ("0", "needs 2 GPU"), ("0,9", "names '9'"), ("0,MIG-x", "names 'MIG-x'")],
)
def test_gpus_that_are_not_there_are_said_so(visible: str, words: str) -> None:
    with pytest.raises(GpuError, match=words):
        gpu_choice.chosen(FakeNvml(gpus=2), 2, {"CUDA_VISIBLE_DEVICES": visible})


def test_without_a_driver_the_start_says_so_and_the_fingerprint_has_no_gpu(tmp_path: Path) -> None:
    def missing() -> Any:
        raise GpuError("the NVIDIA driver cannot be asked")

    with GpuGuard(ONE, open_nvml=missing, lock_folder=tmp_path) as held:
        assert held.describe() == []
        with pytest.raises(GpuError, match="driver"):
            held.before_start()


def test_a_server_that_already_runs_is_described_and_nothing_refused(tmp_path: Path) -> None:
    with guard(FakeNvml(processes=[(0, STRANGER)]), tmp_path) as held:
        held.only_describe()
        held.before_start()
        assert held.watch() is None
        assert held.describe()[0]["name"] == "NVIDIA H200"


def watched(nvml: FakeNvml, during: Any = lambda: None) -> Any:
    watch = Watch(nvml, lambda: {ME}, period=0.01)
    with watch:
        time.sleep(0.05)
        during()
        time.sleep(0.05)
    return watch.seen()


def test_a_sample_holds_the_clocks_of_its_gpus_and_no_stranger() -> None:
    seen = watched(FakeNvml(gpus=2, processes=[(0, ME)]))
    assert (seen.clocks_mhz, seen.throttle_reasons, seen.foreign_pids, seen.failure) == ((1755, 1756), (), (), None)


def test_a_stranger_that_comes_and_goes_within_the_sample_is_named() -> None:
    nvml = FakeNvml(processes=[(0, ME)])

    def visit() -> None:
        nvml.processes.append((0, STRANGER))
        time.sleep(0.1)
        nvml.processes.pop()

    seen = watched(nvml, visit)
    assert seen.foreign_pids == (STRANGER,)
    assert f"pid {STRANGER}" in seen.strangers[0]


def test_throttling_is_told_by_gpu_and_reason() -> None:
    nvml = FakeNvml()
    nvml.reasons = 0x4
    assert watched(nvml).throttle_reasons == ("GPU 0: power cap (100%)",)


def test_a_driver_that_stops_answering_is_no_clean_bill() -> None:
    assert "GPU is lost" in (watched(FakeNvml(fail_listing_after=2)).failure or "")


def test_a_driver_that_hides_what_the_fingerprint_needs_is_told_before_the_start(tmp_path: Path) -> None:
    nvml = FakeNvml()

    def refuse(device: int) -> int:
        raise nvml.NVMLError("Not Supported")

    nvml.nvmlDeviceGetEnforcedPowerLimit = refuse  # type: ignore[method-assign]
    with guard(nvml, tmp_path) as held:
        assert held.describe() == []
        with pytest.raises(GpuError, match="Not Supported"):
            held.before_start()
