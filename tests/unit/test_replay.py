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
    "dsv4_topk_gather_kernel",
    "dsv4_hc_combine_kernel",
)


FILLER = ("elementwise_kernel",) * 12


class Profiler:
    """An SGLang server's two endpoints: a profile is written when the request that it is to show has run.

    ``ranks`` are the kernels of each rank's replayed step; after ``whole`` of its files, SGLang is still writing.
    """

    def __init__(self, *ranks: tuple[str, ...], whole: int = 99, single: tuple[str, ...] = ()) -> None:
        self.ranks, self.whole, self.single, self.folder, self.asked = ranks, whole, single, Path(), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, body))
                if self.path == "/start_profile":
                    outer.folder = Path(body["output_dir"])
                else:
                    outer.write()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *unused: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def write(self) -> None:
        for rank, kernels in enumerate(self.ranks):
            events = [event(name, 1000 + i) for i, name in enumerate(self.single)]
            events += [event(name, step) for step in (1, 2) for name in ((*kernels, *FILLER) if kernels else ())]
            text = json.dumps({"traceEvents": [*events, {"name": "aten::mm", "cat": "cpu_op"}]})
            written = gzip.compress(text.encode())
            (self.folder / f"1-TP-{rank}.trace.json.gz").write_bytes(written if rank < self.whole else written[:40])


def event(name: str, launch: int) -> dict[str, Any]:
    return {"name": name, "cat": "kernel", "ph": "X", "ts": 1.0, "dur": 1.0, "args": {"correlation": launch}}


@pytest.fixture
def profiler(request: pytest.FixtureRequest) -> Iterator[Profiler]:
    ranks, more = request.param
    made = Profiler(*ranks, **more)
    yield made
    made.server.shutdown()


def prove(profiler: Profiler, folder: Path, seconds: float = 5.0, ranks: int = 1) -> list[str]:
    server = Server(base_url=profiler.url, served_name="m", info={}, model=None)
    made = proof.PatchProof(tuple(RECIPE.patch.patches), True, folder / "c", (1, 16), {}, ranks)
    found = replay.prove(server, made, folder / "traces", seconds)
    assert all(p.kind is ProblemKind.PATCH_NOT_PROVED and p.invalid and p.evidence for p in found)
    return [p.message for p in found]


@pytest.mark.parametrize("profiler", [((OURS,), {})], indirect=True)
def test_replay_of_our_kernels_alone_is_proved(profiler: Profiler, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "0-TP-0.trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert prove(profiler, tmp_path) == []
    (path, asked), (_, sent) = profiler.asked
    assert path == "/start_profile"
    assert asked["activities"] == ["GPU"]
    assert sent["sampling_params"]["max_new_tokens"] > asked["num_steps"]


@pytest.mark.parametrize("profiler", [((OURS[:3],), {})], indirect=True)
def test_a_kernel_of_ours_that_replay_lacks_is_named(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path)
    assert message.startswith("NOT_IN_TRACE")
    assert "hc_prenorm" in message


@pytest.mark.parametrize("profiler", [(((*OURS, "sm90::decode::sparse_fp8::kernel<1>"),), {})], indirect=True)
def test_a_replaced_kernel_that_still_runs_is_named(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path)
    assert message.startswith("REPLACED_IN_TRACE")


@pytest.mark.parametrize("profiler", [(((),), {})], indirect=True)
def test_an_empty_trace_proves_nothing(profiler: Profiler, tmp_path: Path) -> None:
    assert len(prove(profiler, tmp_path)) == len(OURS)


@pytest.mark.parametrize("profiler", [((OURS[:1],), {"single": OURS})], indirect=True)
def test_kernels_that_only_the_eager_prefill_launched_are_not_replayed(profiler: Profiler, tmp_path: Path) -> None:
    assert [m.split(" ")[2] for m in prove(profiler, tmp_path)] == ["indexer's", "topk's", "hc_prenorm's"]


@pytest.mark.parametrize("profiler", [((OURS, OURS), {})], indirect=True)
def test_the_traces_of_all_ranks_prove_the_replay(profiler: Profiler, tmp_path: Path) -> None:
    assert prove(profiler, tmp_path, ranks=2) == []
    assert len(replay.stored(tmp_path / "traces")) == 2


@pytest.mark.parametrize("profiler", [((OURS, OURS[:3]), {}), ((OURS[:3], OURS), {})], indirect=True)
def test_one_rank_whose_replay_lacks_a_kernel_is_named(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path, ranks=2)
    assert message.startswith("NOT_IN_TRACE")
    assert "hc_prenorm" in message
    assert f"1-TP-{profiler.ranks.index(OURS[:3])}" in message


@pytest.mark.parametrize("profiler", [((OURS,), {}), ((OURS, OURS), {"whole": 1})], indirect=True)
def test_a_rank_that_wrote_no_trace_is_not_proved_by_the_others(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path, seconds=0.2, ranks=2)
    assert "1 of 2" in message


@pytest.mark.parametrize("profiler", [((), {})], indirect=True)
def test_no_trace_proves_nothing(profiler: Profiler, tmp_path: Path) -> None:
    (message,) = prove(profiler, tmp_path, seconds=0.2)
    assert "0 of 1" in message


def test_what_replay_did_not_show_makes_every_point_invalid(tmp_path: Path) -> None:
    data = new(RECIPE, Order((1, 16), 1, 1, 0))
    made = proof.PatchProof((), True, tmp_path / "c", (1, 16), {}, 1)
    close(RECIPE, data, [StartRecord(1, None, made, replayed=[made.unproved("NOT_IN_TRACE: topk")])])
    assert all(point.condemned for point in data.points.values())
