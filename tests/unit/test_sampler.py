"""What a sample is held to beside its figures: its GPUs, compiled files, the patches; and how a hang is told."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_kit import FakeNvml

from perfgate import point_results, recipe
from perfgate.gpu_watch import Watch
from perfgate.proof import PatchProof
from perfgate.sampler import Sampler, Taken
from perfgate.server import http
from perfgate.validity import Problem, ProblemKind
from perfgate.workload import Plan
from perfgate.workload.client import ClientRun

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "v4mini-patched.toml")
PLAN = Plan(1, 5, 256, 128)
STRANGER = os.getppid()


class Server:
    """A server that answers, or one that a test lets die."""

    base_url, served_name, info = "http://127.0.0.1:1", "name", {"watchdog_timeout": 300}

    def __init__(self, log: Path) -> None:
        self.log = log
        log.write_text("[2026-11-29 12:00:00] server_args=ServerArgs(watchdog_timeout=300)\n")

    def alive(self) -> bool:
        return True

    def exit_code(self) -> None:
        return None


class Client:
    """A client that takes a moment and writes a good line, or runs out of time."""

    def __init__(self, during: Callable[[], None] = lambda: None, timed_out: bool = False) -> None:
        self.during, self.timed_out = during, timed_out

    def run(self, arguments: Any, result: Path, output: Path, deadline: float, tick: Any) -> ClientRun:
        began = time.time()
        time.sleep(0.05)
        self.during()
        time.sleep(0.05)
        line = {"duration": 5.0, "output_throughput": 128.0, "completed": 5, "max_concurrency": 1}
        line |= {"total_input_tokens": 1280, "total_output_tokens": 640}
        lines = () if self.timed_out else (json.dumps(line),)
        code = -9 if self.timed_out else 0
        return ClientRun(code, "", lines, began, time.time(), 0.01, self.timed_out)


@pytest.fixture
def take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Taken]:
    monkeypatch.setenv("HOME", str(tmp_path))  # what other tests compile meanwhile is none of these samples'
    monkeypatch.setattr(http, "flush_cache", lambda url, patience: None)
    monkeypatch.setattr(http, "counters", lambda url: None)

    def make(
        client: Client | None = None, nvml: FakeNvml | None = None, proof: PatchProof | None = None, **limits: Any
    ) -> Taken:
        server = RECIPE.server.model_copy(update={"jit_caches": [str(tmp_path / "jit")]})
        chosen = RECIPE.model_copy(update={"server": server, "limits": RECIPE.limits.model_copy(update=limits)})

        def watch() -> Watch | None:
            return None if nvml is None else Watch(nvml, lambda: {os.getpid()}, period=0.01)

        made = Sampler(
            chosen,
            Server(tmp_path / "server.log"),  # type: ignore[arg-type]
            client or Client(),  # type: ignore[arg-type]
            tmp_path,
            tmp_path,
            1,
            watch,
            proof,
        )
        taken = made.take(PLAN, 1, lambda line: None)
        assert len(made.windows) == 1
        return taken

    return make


def of(taken: Taken, kind: ProblemKind) -> list[Any]:
    return [p for p in taken.problems if p.kind is kind]


def test_a_samples_clocks_power_and_heat_are_stored_with_it(take: Callable[..., Taken]) -> None:
    taken = take(nvml=FakeNvml(gpus=2, processes=[(0, os.getpid())]))
    (row,) = point_results.sample_rows([taken])
    assert (row.clock_mhz, row.throttle) == (1755, [])
    assert (row.power_w, row.hottest_c) == (413.5, 52)  # the second GPU's, which takes more and is hotter
    assert not of(taken, ProblemKind.FOREIGN_PROCESS)
    (bare,) = point_results.sample_rows([take()])
    assert (bare.clock_mhz, bare.power_w, bare.hottest_c) == (None, None, None)


def test_throttling_and_strangers_make_the_sample_invalid_and_are_named(take: Callable[..., Taken]) -> None:
    nvml = FakeNvml(processes=[(0, os.getpid()), (0, STRANGER)])
    nvml.reasons = 0x40
    taken = take(nvml=nvml)
    (stranger,) = of(taken, ProblemKind.FOREIGN_PROCESS)
    assert f"pid {STRANGER} (" in stranger.evidence[0]
    assert of(taken, ProblemKind.THROTTLED)
    assert not taken.counts
    assert point_results.sample_rows([taken])[0].throttle == ["GPU 0: thermal (hardware) (100%)"]


def test_a_gpu_that_could_not_be_watched_makes_the_sample_invalid(take: Callable[..., Taken]) -> None:
    (unseen,) = of(take(nvml=FakeNvml(fail_listing_after=1)), ProblemKind.UNWATCHED)
    assert unseen.invalid


def test_a_kernel_compiled_during_the_sample_makes_it_invalid(take: Callable[..., Taken], tmp_path: Path) -> None:
    (tmp_path / "jit").mkdir()
    assert not of(take(), ProblemKind.JIT)
    taken = take(Client(during=lambda: (tmp_path / "jit" / "k.cubin").touch()))
    (compiled,) = of(taken, ProblemKind.JIT)
    assert compiled.evidence == ("jit/k.cubin",)


def test_so_does_one_by_a_compiler_that_the_recipe_does_not_list(take: Callable[..., Taken], tmp_path: Path) -> None:
    graph = tmp_path / ".cache" / "torchinductor" / "ab" / "graph.py"
    graph.parent.mkdir(parents=True)
    taken = take(Client(during=graph.touch))
    (compiled,) = of(taken, ProblemKind.JIT)
    assert compiled.evidence == ("torchinductor/ab/graph.py",)
    assert not taken.counts


def test_a_patch_that_is_not_proved_makes_the_sample_invalid(take: Callable[..., Taken], tmp_path: Path) -> None:
    unproved = PatchProof(("topk",), True, tmp_path / "c", (1,), {"topk": 2}, 1)
    (found,) = of(take(proof=unproved), ProblemKind.PATCH_NOT_PROVED)
    assert found.invalid


@pytest.mark.timeout(30)
def test_a_hung_server_is_kept_for_its_reason_but_no_longer_than_the_limit(take: Callable[..., Taken]) -> None:
    began = time.monotonic()
    taken = take(Client(timed_out=True), hang_seconds=1.5)
    assert 1.4 < time.monotonic() - began < 8
    assert taken.failure is not None
    assert taken.failure.cause == "HANG_NO_PROGRESS"
    assert taken.failure.server_lost


@pytest.mark.timeout(30)
def test_a_watchdog_that_has_spoken_ends_the_wait_and_its_line_is_kept_without_secrets(
    take: Callable[..., Taken], tmp_path: Path
) -> None:
    line = "[2026-11-29 12:00:09] Scheduler watchdog timeout (self.watchdog_timeout=300, api_key=sk-abcdefgh123)"

    def speak() -> None:
        with (tmp_path / "server.log").open("a") as log:
            log.write(line + "\n")

    began = time.monotonic()
    taken = take(Client(during=speak, timed_out=True), hang_seconds=20)
    assert time.monotonic() - began < 5
    assert taken.failure is not None
    assert taken.failure.cause == "HANG_WATCHDOG"
    assert "sk-abcdefgh123" not in "".join(taken.failure.evidence)
    assert any("watchdog timeout" in text for text in taken.failure.evidence)


def test_texts_of_a_sample_are_stored_without_secrets(take: Callable[..., Taken]) -> None:
    taken = take()
    told = Problem(ProblemKind.COUNTERS, "token=hf_abcdefghijkl at /home/alice/x/y")
    (row,) = point_results.sample_rows([dataclasses.replace(taken, problems=(told,))])
    assert "hf_abcdefghijkl" not in row.problems[0]
    assert "/home/alice" not in row.problems[0]


@pytest.mark.parametrize("seconds", [3600, -3600, 2])
def test_a_clock_that_is_set_during_the_sample_makes_it_invalid(
    take: Callable[..., Taken], monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    real, offset = time.time, [0]
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    assert not of(take(), ProblemKind.CLOCK_STEPPED)
    taken = take(Client(during=lambda: offset.__setitem__(0, seconds)))
    (found,) = of(taken, ProblemKind.CLOCK_STEPPED)
    assert found.invalid
    assert f"{seconds:+d}.0 s" in found.message


def test_a_log_that_is_cut_during_the_sample_makes_it_invalid(take: Callable[..., Taken], tmp_path: Path) -> None:
    line = "[2026-11-29 12:00:09] Decode batch, #running-req: 1, #token: 9, token usage: 0.00, cuda graph: True, gen throughput (token/s): 9.00, #queue-req: 0\n"
    taken = take(Client(during=lambda: (tmp_path / "server.log").write_text(line * 9)))
    assert any("truncated or replaced" in p.message for p in of(taken, ProblemKind.UNREADABLE_LOG))


def test_a_client_that_was_killed_before_it_said_a_word_is_not_taken_for_the_servers_death(
    take: Callable[..., Taken],
) -> None:
    class Killed(Client):
        def run(self, *arguments: Any) -> ClientRun:
            return ClientRun(-9, "", (), time.time() - 1, time.time(), 0.01, timed_out=False)

    taken = take(Killed())
    assert taken.failure is not None
    assert taken.failure.cause == "CLIENT_FAILED"
    assert not taken.failure.server_lost


OUT_OF_MEMORY = (
    "[2026-11-29 12:00:01] Capture target decode CUDA graph begin. bs=[1, 2, 4, 8, 16, 24, 32], avail mem=4 GB\n"
    "[2026-11-29 12:00:02] The server is fired up and ready to roll!\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1008.00 MiB.\n"
)


@pytest.mark.parametrize(("asked", "at_work", "above"), [(64, True, True), (16, True, False), (64, False, False)])
def test_a_lost_server_is_diagnosed_with_the_concurrency_that_it_was_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, at_work: bool, above: bool
) -> None:
    server = Server(tmp_path / "server.log")

    def die() -> None:
        with server.log.open("a") as log:
            log.write(OUT_OF_MEMORY)
        monkeypatch.setattr(server, "alive", lambda: False)
        monkeypatch.setattr(server, "exit_code", lambda: -9)

    def before_the_client(url: str) -> None:
        if not at_work:
            die()
            raise http.ServerHttpError("connection refused")

    monkeypatch.setattr(http, "flush_cache", lambda url, patience: None)
    monkeypatch.setattr(http, "counters", before_the_client)
    made = Sampler(RECIPE, server, Client(during=die), tmp_path, tmp_path, 1)  # type: ignore[arg-type]
    failure = made.take(Plan(asked, 5 * asked, 256, 128), 1, lambda line: None).failure
    assert failure is not None
    assert (failure.cause, failure.server_lost) == ("GPU_OOM", True)
    raised = f"Raise --cuda-graph-max-bs (--cuda-graph-max-bs-decode in newer versions) to {asked}" in failure.advice
    assert raised is above
    assert any("bs=[1, 2, 4, 8, 16, 24, 32]" in line for line in failure.evidence) is above
    assert "--mem-fraction-static" in failure.advice


def test_what_a_killed_client_left_running_is_waited_for_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience: list[float] = []
    monkeypatch.setattr(http, "flush_cache", lambda url, patience: waited(patience))
    monkeypatch.setattr(http, "counters", lambda url: None)
    waited = patience.append
    killed = Client()
    monkeypatch.setattr(killed, "run", lambda *how: dataclasses.replace(Client().run(*how), exit_code=-9, lines=()))
    server = Server(tmp_path / "server.log")
    made = Sampler(RECIPE, server, killed, tmp_path, tmp_path, 1)  # type: ignore[arg-type]
    assert made.take(PLAN, 1, lambda line: None).failure is not None
    made.client = Client()  # type: ignore[assignment]
    for seed in (2, 3):
        assert made.take(PLAN, seed, lambda line: None).failure is None
    assert patience == [0.0, http.LEFTOVER_SECONDS, 0.0]


def test_the_recipe_says_what_counts_as_a_standstill() -> None:
    tiny = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
    for chosen, seconds in ((tiny, 5.0), (RECIPE, 1.0)):
        sampler = Sampler.__new__(Sampler)
        sampler.recipe = chosen
        assert sampler._limits.stall_s == seconds
        assert sampler._limits.little_share == chosen.workload.little_share
        assert sampler._limits.cached_share == chosen.workload.max_cached_share
