"""The trace that proves graph replay: what it shows of the patches, and that nothing else passes for it."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from perfgate import proof, recipe, replay
from perfgate.campaign import Order, new
from perfgate.closing import StartRecord, close
from perfgate.server import Server
from perfgate.validity import ProblemKind

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "v4mini-patched.toml")
OURS = (
    "dsv4_sparse_mla_decode_kernel",
    "dsv4_paged_mqa_logits_kernel",
    "dsv4_topk_select_kernel",
    "dsv4_hc_combine_kernel",
)


class Profiler:
    """An SGLang server's two endpoints: a profile is written when the request that it is to show has run."""

    def __init__(self, kernels: tuple[str, ...], writes: bool = True) -> None:
        self.kernels, self.writes, self.folder, self.asked = kernels, writes, Path(), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, body))
                if self.path == "/start_profile":
                    outer.folder = Path(body["output_dir"])
                elif outer.writes:
                    events = [{"name": name, "cat": "kernel", "ph": "X"} for name in outer.kernels]
                    text = json.dumps({"traceEvents": [*events, {"name": "aten::mm", "cat": "cpu_op"}]})
                    (outer.folder / "1-TP-0.trace.json.gz").write_bytes(gzip.compress(text.encode()))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *unused: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def profiler(request: pytest.FixtureRequest) -> Iterator[Profiler]:
    made = Profiler(*request.param)
    yield made
    made.server.shutdown()


def prove(profiler: Profiler, folder: Path, seconds: float = 5.0) -> list[str]:
    server = Server(base_url=profiler.url, served_name="m", info={}, model=None)
    made = proof.PatchProof(tuple(RECIPE.patch.patches), True, folder / "c", (1, 16), {}, 1)
    found = replay.prove(server, made, folder / "traces", seconds)
    assert all(p.kind is ProblemKind.PATCH_NOT_PROVED and p.invalid and p.evidence for p in found)
    return [p.message for p in found]


@pytest.mark.parametrize("profiler", [(OURS,)], indirect=True)
def test_replay_of_our_kernels_alone_is_proved(profiler: Profiler, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "0-TP-0.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert prove(profiler, tmp_path) == []
    (path, asked), (_, sent) = profiler.asked
    assert path == "/start_profile"
    assert asked["activities"] == ["GPU"]
    assert sent["sampling_params"]["max_new_tokens"] > asked["num_steps"]


@pytest.mark.parametrize("profiler", [(OURS[:3],)], indirect=True)
def test_a_kernel_of_ours_that_replay_lacks_is_named(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path)
    assert message.startswith("NOT_IN_TRACE")
    assert "hc_prenorm" in message


@pytest.mark.parametrize("profiler", [((*OURS, "sm90::decode::sparse_fp8::kernel<1>"),)], indirect=True)
def test_a_replaced_kernel_that_still_runs_is_named(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path)
    assert message.startswith("REPLACED_IN_TRACE")


@pytest.mark.parametrize("profiler", [((),)], indirect=True)
def test_an_empty_trace_proves_nothing(profiler: Profiler, tmp_path: Path) -> None:
    assert len(prove(profiler, tmp_path)) == len(OURS)


@pytest.mark.parametrize("profiler", [(OURS, False)], indirect=True)
def test_no_trace_proves_nothing(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path, seconds=0.2)
    assert "wrote none" in message


def test_what_replay_did_not_show_makes_every_point_invalid(tmp_path: Path) -> None:
    data = new(RECIPE, Order((1, 16), 1, 1, 0))
    made = proof.PatchProof((), True, tmp_path / "c", (1, 16), {}, 1)
    close(RECIPE, data, [StartRecord(1, None, made, replayed=[made.unproved("NOT_IN_TRACE: topk")])])
    assert all(point.condemned for point in data.points.values())
