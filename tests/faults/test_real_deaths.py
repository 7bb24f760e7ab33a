"""A real CPU server that dies or hangs in the middle of a sample, each in its own way."""

from __future__ import annotations

import resource
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import requests
from server.bench import SAMPLE_SECONDS, Bench, bench, hard_kill

from perfgate.result import Outcome

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("real-server")]


@pytest.mark.parametrize("name", ["detokenizer", "http"])
def test_a_process_that_is_killed_in_a_sample_is_missing_with_its_death_as_the_cause(tmp_path: Path, name: str) -> None:
    with bench(tmp_path) as one:
        victim = one.process(name)
        found = one.judge(16, lambda: hard_kill(victim))
    assert found.struck
    assert found.outcome is Outcome.MISSING, found.point
    assert found.point.cause == "SERVER_DIED"
    assert found.point.evidence
    assert found.seconds < 3 * SAMPLE_SECONDS


@pytest.mark.field_case("C16")
def test_a_scheduler_that_stands_still_is_a_hang_although_health_answers(tmp_path: Path) -> None:
    """Its own watchdog stands still with it, so that only the deadline ends this."""
    changes = {"sleep_on_idle = true": "sleep_on_idle = true\nwatchdog_timeout = 300"}
    health: list[int] = []

    with bench(tmp_path, {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}, **changes) as one:
        scheduler = one.process("scheduler")

        def hang() -> None:
            scheduler.send_signal(signal.SIGSTOP)
            time.sleep(2)
            health.append(requests.get(f"{one.server.base_url}/health", timeout=10).status_code)

        found = one.judge(16, hang)
    assert health == [200]
    assert found.outcome is Outcome.MISSING, found.point
    assert found.point.cause == "HANG_NO_PROGRESS"
    assert found.point.evidence
    assert found.seconds < 3 * SAMPLE_SECONDS


def starve(scheduler: psutil.Process) -> None:
    """No more address space than it has now: the next tensor that needs a new mapping cannot be allocated."""
    used = scheduler.memory_info().vms
    resource.prlimit(scheduler.pid, resource.RLIMIT_AS, (used, used))


def burst(one: Bench) -> None:
    """Prompts as long as the context allows: what they need at once is more than is free inside the mappings there are."""
    body = {"input_ids": [7] * 2000, "sampling_params": {"max_new_tokens": 4}}

    def send() -> None:
        try:
            requests.post(f"{one.server.base_url}/generate", json=body, timeout=30)
        except requests.RequestException:
            return  # the server died of it, as it should

    for _ in range(16):
        threading.Thread(target=send, daemon=True).start()


def test_a_server_whose_memory_runs_out_is_missing_for_want_of_host_memory(tmp_path: Path) -> None:
    with bench(tmp_path) as one:
        scheduler = one.process("scheduler")

        def run_out() -> None:
            starve(scheduler)
            burst(one)

        found = one.judge(64, run_out)
    assert found.struck
    assert found.outcome is Outcome.MISSING, found.point
    assert found.point.cause == "SERVER_DIED"
    assert any("memory" in line.lower() or "alloc" in line.lower() for line in found.point.evidence), found.point
    assert found.seconds < 3 * SAMPLE_SECONDS
