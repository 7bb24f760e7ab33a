"""GPU hygiene, on a stand-in for NVML (and without one)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest

from perfgate import gpu
from perfgate.gpu import GpuError, GpuProcess, foreign, lock_gpus, parse_smi, refuse_foreign, wait_for_memory
from perfgate.gpu_sampling import UNTOUCHED, GpuSampler, Reading, summarise, throttle_reasons


class NvmlError(Exception):
    pass


class FakeNvml:
    """Two GPUs of NVML's Python binding, with what these modules call."""

    NVMLError = NvmlError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, processes=(), free=(100, 100), fail_after=None):
        self.processes, self.free, self.fail_after, self.reads = processes, list(free), fail_after, 0

    def nvmlDeviceGetCount(self):
        return 2

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"gpu{index}"

    def nvmlDeviceGetName(self, device):
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, device):
        return SimpleNamespace(total=141 * 2**30, free=self.free[int(device[-1])] * gpu.MIB)

    def nvmlDeviceGetEnforcedPowerLimit(self, device):
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, device, which):
        return 1980

    def nvmlSystemGetDriverVersion(self):
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13000

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return 50

    def nvmlDeviceGetComputeRunningProcesses(self, device):
        return [SimpleNamespace(pid=pid, usedGpuMemory=m) for g, pid, m in self.processes if f"gpu{g}" == device]

    def nvmlDeviceGetClockInfo(self, device, which):
        self.reads += 1
        if self.fail_after is not None and self.reads > self.fail_after:
            raise NvmlError("GPU is lost")
        return 1755

    def nvmlDeviceGetPowerUsage(self, device):
        return 412_500

    def nvmlDeviceGetTemperature(self, device, sensor):
        return 51

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device):
        return 0x4

    def nvmlDeviceGetUtilizationRates(self, device):
        return SimpleNamespace(gpu=97)


def test_a_gpu_is_described_for_the_fingerprint():
    one, two = gpu.describe(FakeNvml())
    assert one == two
    assert one == {
        "name": "NVIDIA H200",
        "memory_gib": 141,
        "power_cap_w": 700,
        "max_sm_mhz": 1980,
        "driver": "580.95.05",
        "cuda_driver": "13.0",
        "topology": ["system; NVLink unknown; P2P unknown"],
    }


def test_processes_are_listed_with_their_gpu_and_command():
    found = gpu.compute_processes(FakeNvml(processes=[(1, os.getpid(), 300 * gpu.MIB), (0, 2**30, None)]))
    assert [(p.gpu, p.pid, p.memory_mib) for p in found] == [(0, 2**30, None), (1, os.getpid(), 300)]
    # Not a fixed word: a test runner may rename its process.
    assert found[1].name.split()[0] in " ".join([*psutil.Process().cmdline(), psutil.Process().name()])


def test_before_a_start_every_process_is_foreign_and_named():
    found = [GpuProcess(0, 4242, "trainer", 900)]
    with pytest.raises(GpuError, match=r"pid 4242 \(trainer\) on GPU 0, 900 MiB"):
        refuse_foreign(found, set())


def test_our_own_processes_are_no_strangers():
    refuse_foreign([GpuProcess(0, 10), GpuProcess(1, 11)], {10, 11})
    refuse_foreign([], set())


def test_a_stranger_beside_ours_is_foreign():
    both = [GpuProcess(0, 10), GpuProcess(0, 99)]
    assert foreign(both, {10}, visible=lambda pid: False) == [both[1]]


def test_ids_of_the_host_seen_from_a_container_are_not_taken_for_strangers():
    hosts = [GpuProcess(0, 70_001)]
    assert foreign(hosts, {10}, visible=lambda pid: False) == []
    assert foreign(hosts, {10}, visible=lambda pid: True) == hosts


SMI = "GPU-aa, 311, /usr/bin/python3, 39512\nGPU-bb, 312, python, [N/A]\nGPU-aa, 313, x, 5\n"


def test_nvidia_smis_rows_are_read():
    assert parse_smi(SMI) == [
        GpuProcess(0, 311, "/usr/bin/python3", 39512),
        GpuProcess(1, 312, "python", None),
        GpuProcess(0, 313, "x", 5),
    ]
    assert parse_smi("\n") == []


@pytest.mark.parametrize("text", ["No devices were found\n", "GPU-aa, x, y, 5\n"])
def test_an_answer_of_another_form_is_not_read_as_an_empty_gpu(text):
    with pytest.raises(GpuError, match="another form"):
        parse_smi(text)


def test_nvidia_smi_that_fails_or_is_missing_says_so():
    def fails(*args, **kwargs):
        return SimpleNamespace(returncode=9, stdout="", stderr="couldn't communicate with the NVIDIA driver")

    def missing(*args, **kwargs):
        raise FileNotFoundError("nvidia-smi")

    with pytest.raises(GpuError, match="communicate with the NVIDIA driver"):
        gpu.compute_processes_by_smi(fails)
    with pytest.raises(GpuError, match="cannot be run"):
        gpu.compute_processes_by_smi(missing)


def test_without_a_driver_or_package_the_message_says_what_is_missing(monkeypatch):
    class Broken:
        NVMLError = NvmlError

        @staticmethod
        def nvmlInit():
            raise NvmlError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", Broken)
    with pytest.raises(GpuError, match=r"Shared Library Not Found.*driver loaded"):
        gpu.open_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(GpuError, match="pip install nvidia-ml-py"):
        gpu.open_nvml()


HOLD = """
import sys, pathlib
from perfgate.gpu import lock_gpus
with lock_gpus(["GPU-aa"], folder=pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.timeout(60)
def test_one_run_a_gpu_on_a_host(tmp_path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as other:
        assert other.stdout.readline() == "held\n"
        with lock_gpus(["GPU-bb"], folder=tmp_path):
            pass
        with pytest.raises(GpuError, match="GPU-aa is locked by another run"), lock_gpus(["GPU-aa"], folder=tmp_path):
            pass
        other.communicate("\n", timeout=30)
    with lock_gpus(["GPU-aa"], folder=tmp_path):
        pass


def test_memory_is_waited_for_and_named_when_it_does_not_come_back():
    nvml, now = FakeNvml(free=(100, 40)), [0.0]

    def sleep(seconds):
        now[0] += seconds
        if now[0] > 2:
            nvml.free[1] = 100

    wait_for_memory(nvml, [90, 90], timeout=10, clock=lambda: now[0], sleep=sleep)
    nvml.free[1] = 40
    now[0] = -100.0
    with pytest.raises(GpuError, match="GPU 1: 40 of 90 MiB"):
        wait_for_memory(nvml, [90, 90], timeout=3, clock=lambda: now[0], sleep=lambda s: sleep(s))


def reading(at=0.0, device=0, mhz=1755, reasons=0, busy=100, top=1980):
    return Reading(at, device, mhz, 400.0 + at, 50, reasons, busy, top)


def test_clocks_are_those_of_a_busy_gpu():
    rows = [reading(at, mhz=m, busy=b) for at, m, b in ((0, 345, 0), (1, 1755, 90), (2, 1600, 95), (3, 1755, 99))]
    (window,) = summarise(rows)
    assert (window.median_sm_mhz, window.lowest_sm_mhz) == (1755, 1600)
    assert (window.readings, window.busy_readings) == (4, 3)
    assert window.median_power_w == 401.5


def test_an_idle_gpu_has_no_clock():
    (window,) = summarise([reading(busy=0)])
    assert (window.median_sm_mhz, window.lowest_sm_mhz, window.throttled) == (None, None, ())


def test_throttling_is_told_by_reason_and_share_and_idling_is_none():
    idle, power, thermal = 0x1, 0x4, 0x40
    rows = [reading(reasons=r) for r in [idle] * 6 + [power] * 3 + [power | thermal]]
    (window,) = summarise(rows)
    assert dict(window.throttled) == {"power cap": 0.4, "thermal (hardware)": 0.1}
    assert throttle_reasons([window], share=0.2) == ("GPU 0: power cap (40%)",)


def test_a_power_cap_that_leaves_the_clock_at_its_highest_has_a_name_of_its_own():
    # H200 at C=64, 2026-11-30: reason "power cap" in 13 % of readings, clocks 1980 to 1980 MHz.
    cap, heat = 0x4, 0x20
    rows = [reading(mhz=1980, reasons=cap)] * 3 + [reading(mhz=1965, reasons=cap), reading(mhz=1980, reasons=heat)]
    (window,) = summarise(rows)
    assert dict(window.throttled) == {"power cap": 0.2, "thermal (software)": 0.2, UNTOUCHED: 0.6}
    (window,) = summarise([reading(mhz=1980, reasons=cap, top=None)])
    assert dict(window.throttled) == {"power cap": 1.0}


def test_each_gpu_has_its_own_row():
    windows = summarise([reading(device=1, mhz=1000), reading(device=0)])
    assert [(w.gpu, w.median_sm_mhz) for w in windows] == [(0, 1755), (1, 1000)]


def test_the_sampler_reads_all_gpus_until_it_is_left():
    nvml = FakeNvml()
    with GpuSampler(nvml, period=0.005) as sampler:
        for _ in range(400):
            if nvml.reads >= 6:
                break
            threading.Event().wait(0.01)
    windows = sampler.windows()
    assert [w.gpu for w in windows] == [0, 1]
    assert all(w.readings >= 2 and w.median_sm_mhz == 1755 and w.median_power_w == 412.5 for w in windows)
    after = nvml.reads
    threading.Event().wait(0.05)
    assert nvml.reads == after


def test_a_gpu_that_falls_off_the_bus_is_told_and_not_passed_over():
    with GpuSampler(FakeNvml(fail_after=3), period=0.001) as sampler:
        sampler._thread.join(5)
    with pytest.raises(GpuError, match="GPU is lost"):
        sampler.windows()


def test_a_sample_that_was_never_watched_is_told():
    with pytest.raises(GpuError, match="before the GPUs were read"):
        GpuSampler(FakeNvml()).windows()
