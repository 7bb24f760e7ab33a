"""A profile of a live server: asked for through its own endpoints, and never a reason for the run to fail."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.judging import record_first, sample, samples

from perfgate import profiles, profiling
from perfgate.baseline import load
from perfgate.baseline.schema import StoredShares
from perfgate.profile import Shares
from perfgate.sampler import Failure, Sampler, Taken
from perfgate.workload import Plan

PLAN = Plan(16, 800, 64, 32)
STEPS = [
    {"ph": "X", "cat": "user_annotation", "name": "step[DECODE bs=16]", "ts": ts, "dur": 90, "pid": 1, "tid": 1}
    for ts in (0, 100)
]
ROWS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 80, "pid": 1, "tid": 1},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 80, "dur": 20, "pid": 1, "tid": 1},
]


class Fake:
    """A server with SGLang's two endpoints: it keeps what it was asked and leaves ``trace`` when it is stopped."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict]] = []
        self.trace: str | None = json.dumps({"traceEvents": ROWS + STEPS})
        self.status = 200
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
                fake.calls.append((self.path, body))
                if self.path == "/stop_profile" and fake.trace is not None:
                    (Path(fake.calls[0][1]["output_dir"]) / "1-TP-0.trace.json").write_text(fake.trace)
                self.send_response(fake.status)
                self.end_headers()
                self.wfile.write(b"Profiling is already in progress.")

            def log_message(self, *unused: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def fake() -> Iterator[Fake]:
    one = Fake()
    yield one
    one.server.shutdown()
    one.server.server_close()


class Stub(Sampler):
    """A sampler that only notes what it was asked to take, and when in the server's calls."""

    def __init__(self, fake: Fake, failure: Failure | None = None) -> None:
        self.recipe = SimpleNamespace(device="cpu")  # type: ignore[assignment]
        self.server = SimpleNamespace(base_url=fake.url)  # type: ignore[assignment]
        self.fake, self.failure, self.plans = fake, failure, []

    def take(self, plan, seed, show):
        self.plans.append(plan)
        assert [path for path, _ in self.fake.calls[-1:]] == ["/start_profile"]
        return Taken(plan, None if self.failure else sample(), failure=self.failure)


def quiet(line: str) -> None:
    pass


def test_the_servers_own_endpoints_are_asked_around_two_waves_of_the_points_shapes(fake, tmp_path):
    stub = Stub(fake)
    found = profiling.take(stub, PLAN, tmp_path, 1, quiet)
    assert found.shares.by_category["GEMM"] == 0.8
    (start, order), (stop, _) = fake.calls
    assert (start, stop) == ("/start_profile", "/stop_profile")
    assert order["activities"] == ["CPU"]
    assert order["with_stack"] is False
    assert [(p.num_prompts, p.warmup_requests, p.concurrency) for p in stub.plans] == [(32, 0, 16)]


def test_profiling_is_stopped_even_where_the_work_failed(fake, tmp_path):
    stub = Stub(fake, Failure("CLIENT_FAILED", (), "", server_lost=False, message="the client ended"))
    found = profiling.look(stub, {}, {16: PLAN}, [16], tmp_path, quiet)
    assert [path for path, _ in fake.calls] == ["/start_profile", "/stop_profile"]
    assert "the client ended" in found.failed[16]


@pytest.mark.parametrize("fault", ["status", "no trace", "cut off", "gone", "no server"])
def test_a_profile_that_cannot_be_had_is_said_and_fails_nothing(fake, tmp_path, fault, monkeypatch):
    monkeypatch.setattr(profiling, "FILE_SECONDS", 0.3)
    stub = Stub(fake)
    if fault == "status":
        fake.status = 500
    elif fault == "no trace":
        fake.trace = None
    elif fault == "cut off":
        fake.trace = '{"traceEvents": [{"ph": "X"'
    elif fault == "gone":
        stub.server = SimpleNamespace(base_url="http://127.0.0.1:9")
    found = profiling.look(None if fault == "no server" else stub, {}, {16: PLAN}, [16], tmp_path, quiet)
    assert found.now == {}
    (note,) = found.notes()
    assert note.startswith("C=16: no profile: ")
    assert found.as_extra() == {}


def test_shares_on_record_are_what_a_single_run_is_held_against(fake, tmp_path):
    kept = Shares("CPU", {"GEMM": 0.5, "norm and elementwise": 0.5})
    found = profiling.look(Stub(fake), {16: kept}, {16: PLAN}, [16], tmp_path, quiet)
    assert found.notes() == ["C=16: more of the CPU time than before: GEMM 50% -> 80%"]
    shown = found.as_extra()["profile"]
    assert shown["device"] == "CPU"
    assert shown["concurrency"] == 16
    assert shown["baseline_shares"]["GEMM"] == 0.5
    assert shown["points"]["16"]["said"] == found.notes()[0].removeprefix("C=16: ")


def test_without_shares_on_record_it_says_how_to_get_them(fake, tmp_path):
    found = profiling.look(Stub(fake), {}, {16: PLAN}, [16], tmp_path, quiet)
    (note,) = found.notes()
    assert "GEMM 80%" in note
    assert "--record with --profile" in note
    assert "baseline_shares" not in found.as_extra()["profile"]
    found.recording = True
    assert "--record" not in found.notes()[0]


def test_two_live_servers_are_both_profiled(fake, tmp_path):
    old = Fake()
    try:
        old.trace = json.dumps({"traceEvents": [{**ROWS[0], "dur": 20}, {**ROWS[1], "ts": 20, "dur": 80}, *STEPS]})
        found = profiling.look(Stub(fake), Stub(old), {16: PLAN}, [16], tmp_path, quiet)
    finally:
        old.server.shutdown()
        old.server.server_close()
    assert found.before[16].by_category["GEMM"] == 0.2
    assert found.notes() == ["C=16: more of the CPU time than before: GEMM 20% -> 80%"]


def test_a_baseline_keeps_the_shares_that_were_recorded_with_it(tmp_path):
    path = tmp_path / "h.json"
    seen = profiles.Profiles(now={16: Shares("GPU", {"MoE": 0.75, "glue": 0.25}, 0.6)})
    record_first(path, profiles=seen.stored())
    assert profiles.recorded(load(path)) == seen.now
    # Another recording without a look is of other code: the old shares would be compared with what they do not describe.
    record_first(path, points={16: samples([1100, 1100, 1100])})
    assert profiles.recorded(load(path)) == {}


def test_shares_beyond_one_are_no_shares():
    with pytest.raises(ValueError, match="less than or equal to 1"):
        StoredShares(device="GPU", by_category={"MoE": 1.2})
