"""Clocks are read of a GPU that is at work, or not at all: by NVML, else by nvidia-smi. Without a GPU, on fakes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernelbench.fake_cuda import FakeCuda

from perfgate.gpu import GpuError
from perfgate.kernelbench import clock_watch
from perfgate.kernelbench.clock_watch import watch


class FakeNvml:
    """Answers with the next of ``clocks``; the readings before the last are at the card's highest."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, *clocks: int, bits: int = 0, fails: bool = False) -> None:
        self.clocks, self.bits, self.fails = list(clocks), bits, fails

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes) -> str:
        assert uuid == b"GPU-12345678"
        if self.fails:
            raise self.NVMLError
        return "device"

    def nvmlDeviceGetClockInfo(self, device: str, which: int) -> int:
        return self.clocks.pop(0) if len(self.clocks) > 1 else self.clocks[0]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: str) -> int:
        return self.bits

    def nvmlDeviceGetPowerUsage(self, device: str) -> int:
        return 321_000

    def nvmlDeviceGetTemperature(self, device: str, sensor: int) -> int:
        return 44

    def nvmlDeviceGetMaxClockInfo(self, device: str, which: int) -> int:
        return 1980

    NVML_TEMPERATURE_GPU = 0


class Work:
    """``busy``: counts how often work was queued, and says whether the GPU was still at it."""

    def __init__(self, still: bool = True) -> None:
        self.still, self.times = still, 0

    def __call__(self, seconds: float) -> Callable[[], bool]:
        self.times += 1
        return lambda: self.still


class Smi:
    """A process that answers after it was looked at so often."""

    def __init__(self, answer: str, looks: int = 5, code: int = 0) -> None:
        self.answer, self.looks, self.returncode, self.killed = answer, looks, code, False
        self.command: list[str] = []

    def __call__(self, command: list[str], **options: Any) -> Smi:
        self.command = command
        return self

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks >= 0 else self.returncode

    def kill(self) -> None:
        self.killed, self.returncode = True, -9

    def communicate(self) -> tuple[str, None]:
        return self.answer, None


ANSWER = "1965, 0x0000000000000004, 650.10, 60, 1980\n"


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    for name in ("get_device_properties", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, getattr(fake, name))
    return fake


def use(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml | None) -> None:
    def opened() -> FakeNvml:
        if nvml is None:
            raise GpuError("no NVML")
        return nvml

    monkeypatch.setattr(clock_watch, "open_nvml", opened)


def no_smi(*unused: Any, **options: Any) -> Any:
    raise FileNotFoundError("nvidia-smi")


def test_nvml_is_read_several_times_and_the_lowest_stands(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> None:
    use(monkeypatch, FakeNvml(1980, 1905, 1980, bits=0x04))
    work = Work()
    found = watch(work, 0, no_smi)
    assert (found.sm_mhz, found.top_mhz, found.read_by) == (1905, 1980, "NVML")
    assert (found.throttled, found.noted) == (("power cap",), ("power cap, clock at its highest",))
    assert (found.power_w, found.temperature_c) == (321.0, 44)
    assert work.times >= 1
    assert cuda.log == [("synchronize",)], "the work that was queued ends before what comes next"


def test_a_gpu_that_was_done_before_the_reading_has_not_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeNvml(345))
    found = watch(Work(still=False), 0, no_smi)
    assert found.sm_mhz is None
    assert found.read_by == "NVML, of a GPU that may have been idle"


def test_without_nvml_work_is_queued_until_nvidia_smi_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    work, smi = Work(), Smi(ANSWER, looks=5)
    found = watch(work, 0, smi)
    assert work.times >= 5
    assert smi.command[:2] == ["nvidia-smi", "--id=GPU-12345678"]
    assert (found.sm_mhz, found.top_mhz, found.throttled) == (1965, 1980, ("power cap",))
    assert (found.power_w, found.temperature_c, found.read_by) == (650.1, 60, "nvidia-smi")
    assert watch(Work(still=False), 0, Smi(ANSWER)).sm_mhz is None


def test_an_nvml_that_does_not_answer_gives_way_to_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, FakeNvml(1980, fails=True))
    assert watch(Work(), 0, Smi(ANSWER)).read_by == "nvidia-smi"


@pytest.mark.parametrize("smi", [no_smi, Smi("", code=0), Smi(ANSWER, code=9), Smi("two\nrows\n"), Smi("1980, 0x0\n")])
def test_what_cannot_be_read_is_unread(monkeypatch: pytest.MonkeyPatch, smi: Any) -> None:
    use(monkeypatch, None)
    assert watch(Work(), 0, smi).sm_mhz is None


def test_an_nvidia_smi_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    monkeypatch.setattr(clock_watch, "SMI_SECONDS", 0.01)
    smi = Smi("", looks=10**9)
    assert watch(Work(), 0, smi).sm_mhz is None
    assert smi.killed
