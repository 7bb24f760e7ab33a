"""Faults around a whole run of the gate, as its user starts it: Ctrl-C at every stage, a full disk, a stolen port, a twin."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import kit

from perfgate import baseline, fingerprint, serverlog
from perfgate.report import jsonfile
from perfgate.server.lifecycle import free_port
from perfgate.workload import Sample

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("real-server")]
SHIMS = Path(__file__).parent / "shims"
STARTING = 1200.0
"""Seconds for all that comes before a fault: a start takes 30 s on an idle machine of two cores, and tests share it."""

ENDING = 120.0
"""Seconds from a fault to the end of the run: what is left to do is to stop the server and to write a report."""

FULL = 12_000
"""Bytes: more than what pytest prints here, less than a baseline with the server's arguments in it."""

RECORD = ("--record", "--reason", "for the tests")


class Run:
    """One run of the gate at C=1 with a cache and locks of its own, so that it waits for nobody else on this machine."""

    def __init__(self, folder: Path, *arguments: str, cache: Path | None = None) -> None:
        changes = {
            "start_seconds = 600": "start_seconds = 900",
            "max_startup_seconds = 400": "max_startup_seconds = 900",
        }
        recipe = kit.quick_recipe(folder, **changes)
        self.folder, self.report, self.baselines = folder, folder / "report", folder / "baselines"
        self.disk = folder / "disk"
        environment = {
            "PYTHONPATH": str(SHIMS),
            "STAND_IN_DISK": str(self.disk),
            "PERFGATE_CACHE": str(cache or folder / "cache"),
            "PERFGATE_LOCKS": str((cache or folder / "cache") / "locks"),
        }
        options = ["--recipe", str(recipe), "--baselines", str(self.baselines), "--concurrency", "1"]
        self.process = kit.start(folder, *options, *arguments, environment=environment)

    def reach(self, stage: str) -> None:
        """Wait until the run is in this stage; ``STARTING`` seconds at most."""
        kit.wait_for(lambda: self._in(stage) or self.process.poll() is not None, STARTING)
        assert self.process.poll() is None, (self.folder / "out.txt").read_text()

    def _in(self, stage: str) -> bool:
        if stage in ("reporting", "recording"):
            self.disk.write_text("result.json" if stage == "reporting" else str(self.baselines))
            return self.disk.with_suffix(".waiting").exists()
        outputs = sorted((self.report / "samples").glob("*-c1.client.txt"))
        number = {"warm-up": 0, "sample": 1}[stage]
        return len(outputs) > number and "Starting main benchmark run" in outputs[number].read_text(errors="replace")

    def interrupt(self) -> kit.Outcome:
        self.process.send_signal(signal.SIGINT)
        return self.end()

    def end(self, seconds: float = ENDING) -> kit.Outcome:
        began = time.monotonic()
        found = kit.finish(self.process, self.folder, seconds)
        assert time.monotonic() - began < seconds
        assert "INTERNALERROR" not in found.text
        assert kit.servers(found.report) == []
        assert not list((self.folder / "cache" / "servers").glob("*.json"))
        self.nothing_half_written()
        return found

    def nothing_half_written(self) -> None:
        left = [p for folder in (self.report, self.baselines) for p in folder.rglob(".*") if p.is_file()]
        assert left == []
        for path in self.report.glob("result.json"):
            jsonfile.read(path)
        for path in self.baselines.rglob("*.json"):
            baseline.load(path)

    def stop(self) -> None:
        self.disk.unlink(missing_ok=True)
        if self.process.poll() is None:
            self.process.terminate()  # its fixtures stop the server
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def started() -> Iterator[list[Run]]:
    """Runs that are ended with the test, whatever became of it."""
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.stop()


@pytest.mark.parametrize("stage", ["warm-up", "sample"])
def test_ctrl_c_while_measuring_leaves_a_result_that_says_so(tmp_path: Path, started: list[Run], stage: str) -> None:
    run = Run(tmp_path)
    started.append(run)
    run.reach(stage)
    found = run.interrupt()
    assert found.code == 2
    assert found.verdicts() == {1: "MISSING"}
    assert "interrupted" in found.point(1)["why"]


def test_ctrl_c_while_the_report_is_written_leaves_none_or_a_whole_one(tmp_path: Path, started: list[Run]) -> None:
    run = Run(tmp_path)
    started.append(run)
    run.reach("reporting")
    found = run.interrupt()
    assert found.code == 2
    assert found.result is None


def test_ctrl_c_while_a_baseline_is_written_leaves_the_old_one(tmp_path: Path, started: list[Run]) -> None:
    old = stored_baseline(tmp_path / "baselines")
    before = old.read_bytes()
    run = Run(tmp_path, *RECORD)
    started.append(run)
    run.reach("recording")
    found = run.interrupt()
    assert found.code == 2
    assert old.read_bytes() == before
    assert found.result is not None  # what was measured is not lost with it
    assert "recorded" not in " ".join(found.result["notes"])


def test_a_disk_that_fills_up_while_a_baseline_is_written_leaves_none_and_fails(
    tmp_path: Path, started: list[Run]
) -> None:
    """The kernel refuses to let any file of the gate's process grow past ``FULL`` once the report is written."""
    run = Run(tmp_path, *RECORD)
    started.append(run)
    run.disk.write_text("report.html")
    kit.wait_for(lambda: run.disk.with_suffix(".waiting").exists() or run.process.poll() is not None, STARTING)
    resource.prlimit(run.process.pid, resource.RLIMIT_FSIZE, (FULL, resource.RLIM_INFINITY))
    run.disk.write_text(str(run.baselines))  # the report goes on, the recording waits until its file was refused
    kit.wait_for(lambda: list(tmp_path.glob("report/report.html")), 60)
    found = run.end()
    assert found.code == 1
    assert "cannot be written" in found.text
    assert "File too large" in found.text
    assert list(run.baselines.rglob("*.json")) == []
    assert found.result is not None  # measured and judged, so it is not lost with the baseline
    assert found.verdicts()[1] in ("NO_BASELINE", "PASS")


def test_a_port_that_is_taken_while_the_server_starts_is_named(tmp_path: Path, started: list[Run]) -> None:
    port = free_port()
    run = Run(tmp_path, "--port", str(port))
    started.append(run)
    kit.wait_for(lambda: (run.report / "server-start1.log").exists(), STARTING)
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        found = run.end(STARTING)
    assert found.code == 1
    assert found.verdicts() == {1: "MISSING"}
    assert found.point(1)["cause"] == "PORT_IN_USE", found.point(1)
    assert any(str(port) in line or "address" in line.lower() for line in found.point(1)["evidence"])


def test_two_suites_started_at_once_measure_one_after_the_other(tmp_path: Path, started: list[Run]) -> None:
    runs = [Run(tmp_path / name, cache=tmp_path / "cache") for name in ("one", "two")]
    started += runs
    found = [run.end(2 * STARTING) for run in runs]
    for one in found:
        # What else the machine does may spoil a sample of either; what may not happen is that one suite spoils the other's.
        assert one.verdicts()[1] in ("PASS", "INVALID"), one.text[-3000:]
        assert not any(word in one.point(1)["why"] for word in ("stray", "counters", "wrong_result")), one.point(1)
    assert sum("another run is measuring on this host" in f.text for f in found) == 1
    spans = sorted(life(f.report / "server-start1.log") for f in found)
    assert spans[0][1] <= spans[1][0]


def life(log: Path) -> tuple[float, float]:
    """The times of the first and the last line of a server's log."""
    times = [event.time for event in serverlog.read_file(log).events if event.time is not None]
    return min(times), max(times)


def stored_baseline(folder: Path) -> Path:
    """A baseline of this machine that was there before."""
    path = folder / "cpu-tiny" / f"{fingerprint.hardware_name(fingerprint.collect({}))}.json"
    samples = [Sample(1, 5, 1.0, 320, 80, rate, median_tpot_ms=7.0) for rate in (100.0, 101.0)]
    baseline.record(
        path, recipe="cpu-tiny", hardware=path.stem, points={1: samples}, fingerprint={}, recorded_at="2026-11-29"
    )
    return path
