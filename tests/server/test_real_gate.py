"""The gate on a real SGLang server: it passes, it fails, and it never passes without having measured."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import psutil
import pytest

from server import kit

pytestmark = pytest.mark.xdist_group("real-server")

THREE = {"samples = 2\nmax_samples = 2": "samples = 3\nmax_samples = 6"}
"""Two samples a side leave an interval of 16 standard errors, which no busy machine gets below any bound."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> kit.Outcome:
    """A baseline recorded under two xdist workers."""
    folder = tmp_path_factory.mktemp("recorded")
    recipe = kit.quick_recipe(folder, **THREE)
    reason = ["--record", "--reason", "for the tests"]
    return kit.run(folder, "--recipe", str(recipe), "--baselines", str(folder / "baselines"), "-n", "2", *reason)


def test_recording_measures_all_points_and_writes_a_baseline_with_its_provenance(recorded: kit.Outcome) -> None:
    assert recorded.code == 0, recorded.text
    (path,) = (recorded.report.parent / "baselines" / "cpu-tiny").glob("*.json")
    stored = json.loads(path.read_text())
    assert sorted(stored["points"], key=int) == ["1", "16", "64"]
    point = stored["points"]["16"]
    assert point["provenance"]["reason"] == "for the tests"
    assert point["provenance"]["sglang_version"] == "0.5.15.post1"
    assert len(point["metrics"]["throughput"]["samples"]) >= 2
    assert point["provenance"]["fingerprint"]["environment"]["OMP_NUM_THREADS"] == "1"
    assert any("torch native attention backend" in line for line in point["provenance"]["fingerprint"]["backends"])
    assert str(Path.home()) not in path.read_text()


def test_two_workers_start_one_server_and_leave_no_process(recorded: kit.Outcome) -> None:
    logs = list(recorded.report.glob("server-start*.log"))
    assert len(logs) == 1
    assert logs[0].read_bytes().count(b"The server is fired up and ready to roll!") == 1
    assert kit.servers(recorded.report) == []
    assert recorded.result is not None
    assert recorded.result["seconds"] > recorded.result["server_seconds"] > 0


def test_a_limit_that_cuts_into_one_point_fails_that_point_and_no_other(tmp_path: Path) -> None:
    # The noise of a busy machine at C=1 is not what this is about, so a floor judges it that every machine keeps.
    baselines = tmp_path / "none"
    changes = {
        "sleep_on_idle = true": "sleep_on_idle = true\nmax_running_requests = 8",
        **THREE,
    }
    recipe = kit.quick_recipe(tmp_path, **changes)
    chosen = ["--concurrency", "1,64"]
    found = kit.run(tmp_path, "--recipe", str(recipe), "--baselines", str(baselines), *chosen)
    assert found.code == 1
    verdicts = found.verdicts()
    assert verdicts[1] == "PASS", found.text
    # Slower beyond noise, or on a busy machine within it: either way it was not measured at 64, and must not pass.
    assert verdicts[64] in ("REGRESSION", "INVALID"), found.text
    assert "max_running_requests=8" in found.point(64)["why"]
    assert found.result is not None
    assert any("max_running_requests" in line or "running" in line for line in found.result["extra"]["preflight"])
    assert found.result["not_run"] == ["C=16: not asked for (--concurrency)"]


def test_a_server_killed_in_the_middle_of_a_point_is_missing_there_alone(tmp_path: Path) -> None:
    recipe = kit.quick_recipe(tmp_path)
    baselines = tmp_path / "none"
    chosen = ["--concurrency", "1,16"]
    process = kit.start(tmp_path, "--recipe", str(recipe), "--baselines", str(baselines), *chosen)
    samples = tmp_path / "report" / "samples"

    def measuring_c16() -> list[psutil.Process]:
        outputs = sorted(samples.glob("*-c16.client.txt"))
        # The first is the warm-up; the second has begun when its main run has.
        started = len(outputs) >= 2 and "Starting main benchmark run" in outputs[1].read_text()
        return launched(tmp_path / "report") if started else []

    victims = kit.wait_for(measuring_c16, 300)
    victims[0].send_signal(signal.SIGKILL)
    found = kit.finish(process, tmp_path)
    assert found.code == 1
    assert found.verdicts()[16] == "MISSING", found.text
    assert found.point(16)["cause"] == "SERVER_DIED"
    assert found.point(16)["evidence"]
    assert found.verdicts()[1] == "PASS", found.text
    assert [s for s in found.point(1)["samples"] if s["counted"]]
    assert kit.servers(found.report) == []


def launched(report: Path) -> list[psutil.Process]:
    return [p for p in kit.servers(report) if "sglang.launch_server" in " ".join(p.cmdline())]


def test_ctrl_c_leaves_no_process_and_says_what_was_not_measured(tmp_path: Path) -> None:
    process = kit.start(tmp_path, "--recipe", str(kit.quick_recipe(tmp_path)))
    kit.wait_for(lambda: launched(tmp_path / "report"), 120)
    process.send_signal(signal.SIGINT)
    found = kit.finish(process, tmp_path)
    assert found.code == 2
    assert set(found.verdicts().values()) == {"MISSING"}
    assert "interrupted" in found.point(1)["why"]
    assert kit.servers(found.report) == []


def test_ctrl_c_before_the_client_is_imported_is_told_as_well(tmp_path: Path) -> None:
    process = kit.start(tmp_path, "--recipe", str(kit.quick_recipe(tmp_path)))
    kit.wait_for(lambda: (tmp_path / "report" / "client-preload.log").exists(), 120)
    process.send_signal(signal.SIGINT)
    found = kit.finish(process, tmp_path)
    assert found.code == 2
    assert "INTERNALERROR" not in found.text
    assert kit.servers(found.report) == []


def test_a_missing_sglang_is_said_and_makes_every_point_missing(tmp_path: Path) -> None:
    broken = tmp_path / "path" / "sglang"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('no sglang on this machine')")
    recipe = str(kit.quick_recipe(tmp_path))
    process = kit.start(tmp_path, "--recipe", recipe, environment={"PYTHONPATH": str(broken.parent)})
    found = kit.finish(process, tmp_path)
    assert found.code == 1
    assert set(found.verdicts().values()) == {"MISSING"}
    assert "no sglang on this machine" in found.point(1)["why"]
    assert "requirements/README.md" in found.point(1)["why"]


def test_the_next_run_ends_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    process = kit.start(tmp_path / "killed", "--recipe", str(kit.quick_recipe(tmp_path)))
    kit.wait_for(lambda: launched(tmp_path / "killed" / "report"), 120)
    process.kill()
    process.wait()
    assert launched(tmp_path / "killed" / "report")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])  # so that the next run ends soon
        found = kit.run(tmp_path / "next", "--recipe", str(kit.quick_recipe(tmp_path)), "--port", port)
    assert f"ended a server that run {process.pid} left behind" in found.text
    assert kit.servers(tmp_path / "killed" / "report") == []


def test_a_port_that_answers_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = kit.run(tmp_path, "--recipe", str(kit.quick_recipe(tmp_path)), "--port", str(port))
    assert found.code == 1
    assert set(found.verdicts().values()) == {"MISSING"}
    assert f"port {port} already answers" in found.text
    assert not list(found.report.glob("server-start*.log"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--recipe", "cpu-tinny"], "unknown recipe 'cpu-tinny'"),
        (["--concurrency", "3"], "--concurrency 3 is not a point of recipe cpu-tiny, which has 1, 16, 64"),
        (["--concurrency", "one"], "'one' is not a whole number"),
        (["--record"], "--record needs --reason"),
        (["--samples", "1"], "at least 2 are needed"),
        (["--against", "cpu-tinny"], "unknown recipe 'cpu-tinny'"),
    ],
)
def test_wrong_options_are_one_clear_error(tmp_path: Path, arguments: list[str], said: str) -> None:
    found = kit.run(tmp_path, *arguments)
    assert found.code != 0
    assert said in found.text
    assert "Traceback" not in found.text


@pytest.mark.parametrize(
    ("content", "said"), [('{"schema_version": 1, "rec', "cpu-tiny"), ('{"schema_version": 99}', "99"), ("[]", "json")]
)
def test_a_baseline_that_cannot_be_used_is_told_before_a_server_is_started(
    tmp_path: Path, content: str, said: str
) -> None:
    from perfgate import fingerprint

    path = tmp_path / "b" / "cpu-tiny" / f"{fingerprint.hardware_name(fingerprint.collect({}))}.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    found = kit.run(tmp_path, "--baselines", str(tmp_path / "b"))
    assert found.code == 1
    assert path.name in found.text
    assert said in found.text
    assert not list(found.report.glob("server-start*.log"))


def test_a_stale_result_does_not_survive_a_run_that_measures_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (report / "result.json").write_text('{"outcome": "PASS"}')
    path = tmp_path / "b" / "cpu-tiny"
    path.mkdir(parents=True)
    from perfgate import fingerprint

    (path / f"{fingerprint.hardware_name(fingerprint.collect({}))}.json").write_text("{")
    found = kit.run(tmp_path, "--baselines", str(tmp_path / "b"))
    assert found.code == 1
    assert found.result is None
