"""Between the ready line and the first sample: sweep over HTTP, flush, proof; each failure ends as a reason."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from test_campaign import Script, run

from perfgate import campaign, jit_files, point_results, ready, recipe
from perfgate.proof import PatchProof
from perfgate.result import Outcome
from perfgate.server import Server, ServerError
from perfgate.server.lifecycle import HIGHEST_PORT, NotProved, free_port

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "v4mini-patched.toml")
SHORT = RECIPE.model_copy(
    update={
        "warmup": RECIPE.warmup.model_copy(update={"prompt_lengths": [8, 24], "burst_sizes": []}),
        "limits": RECIPE.limits.model_copy(update={"start_seconds": 2.0}),
    }
)


class Web(ThreadingHTTPServer):
    """``/generate`` and ``/flush_cache`` as SGLang answers them."""

    daemon_threads = True

    def __init__(self, status: int = 200, body: Any = None, wait: float = 0.0) -> None:
        self.status, self.body, self.wait = status, body or {"text": "t", "meta_info": {}}, wait
        self.asked: list[tuple[str, Any]] = []
        self.released = threading.Event()
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                web.asked.append((self.path, json.loads(sent) if sent else None))
                generating = self.path == "/generate"
                if generating and web.wait:
                    web.released.wait(web.wait)
                answer = web.body(web.asked[-1][1]) if generating and callable(web.body) else web.body
                body = json.dumps(answer if generating else {}).encode()
                self.send_response(web.status if generating else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *unused: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    webs: list[Web] = []

    def make(**behaviour: Any) -> tuple[Web, Server]:
        web = Web(**behaviour)
        webs.append(web)
        (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 500}))
        log = tmp_path / "server-start1.log"
        log.write_text("started\n")
        return web, Server(f"http://127.0.0.1:{web.server_port}", "name", {}, tmp_path, log)

    yield make
    for web in webs:
        web.released.set()
        web.shutdown()
        web.server_close()


def test_the_sweep_sends_exact_ids_for_one_token_and_flushes_the_cache(serve: Any) -> None:
    web, server = serve()
    windows: list[tuple[float, float]] = []
    (note,) = ready.make_ready(SHORT, server, None, windows, lambda line: None)
    generated = [body for path, body in web.asked if path == "/generate"]
    assert [len(body["input_ids"]) for body in generated] == [8, 24]
    assert {body["sampling_params"]["max_new_tokens"] for body in generated} == {1}
    assert all(16 <= token < 500 for body in generated for token in body["input_ids"])
    assert web.asked[-1][0] == "/flush_cache"
    assert note.startswith("warm-up sweep: 1 rounds")
    assert len(windows) == 1


def burst(folder: Path) -> recipe.Recipe:
    """Bursts alone, with ``folder/cache`` to look into."""
    (folder / "cache").mkdir(exist_ok=True)
    return SHORT.model_copy(
        update={
            "warmup": RECIPE.warmup.model_copy(update={"prompt_lengths": [], "burst_sizes": [1, 3], "max_rounds": 2}),
            "server": RECIPE.server.model_copy(update={"jit_caches": [str(folder / "cache")]}),
        }
    )


def test_bursts_are_sent_at_once_with_the_lengths_of_their_answers(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    answers = {1: [{"meta_info": {}}], 3: [{"meta_info": {}}] * 3}
    web, server = serve(body=lambda asked: answers[len(asked["input_ids"])])
    windows: list[tuple[float, float]] = []
    (note,) = ready.make_ready(burst(tmp_path), server, None, windows, lambda line: None)
    sent = [body for path, body in web.asked if path == "/generate"]
    assert [len(body["input_ids"]) for body in sent] == [1, 3]
    assert [len(body["sampling_params"]) for body in sent] == [1, 3]
    assert {len(ids) for body in sent for ids in body["input_ids"]} == {RECIPE.workload.input_len}
    assert web.asked[-1][0] == "/flush_cache"
    assert note.startswith("warm-up bursts: 1 rounds")
    assert len(windows) == 1


@pytest.mark.parametrize("folder", ["cache", ".cache/torchinductor"])
def test_bursts_that_compile_are_sent_again(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = tmp_path / folder
    cache.mkdir(parents=True, exist_ok=True)

    def compiling(asked: dict[str, Any]) -> Any:
        (cache / f"{len(list(cache.iterdir()))}.cubin").write_text("compiled")
        time.sleep(3 * jit_files.CLOCK_SECONDS)  # no server is so fast that a round ends within a file's clock
        return [{"meta_info": {}}] * len(asked["input_ids"])

    web, server = serve(body=compiling)
    (note,) = ready.make_ready(burst(tmp_path), server, None, [], lambda line: None)
    assert len([path for path, _ in web.asked if path == "/generate"]) == 4
    assert "2 files were still compiled" in note


@pytest.mark.parametrize("answer", [[{"meta_info": {}}], {"error": {"message": "no"}}, [{}, {}, {}]])
def test_a_burst_of_which_not_all_are_answered_ends_the_start(serve: Any, tmp_path: Path, answer: Any) -> None:
    _, server = serve(body=lambda asked: answer if len(asked["input_ids"]) == 3 else [{"meta_info": {}}])
    with pytest.raises(ServerError, match="3 prompts at once"):
        ready.make_ready(burst(tmp_path), server, None, [], lambda line: None)


def test_a_recipe_without_lengths_sends_nothing(serve: Any) -> None:
    web, server = serve()
    cpu = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
    assert ready.make_ready(cpu, server, None, [], lambda line: None) == []
    assert web.asked == []


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [({"status": 500}, "status 500"), ({"body": {"error": {"message": "no"}}}, "no generation")],
)
def test_a_request_that_fails_ends_the_start_with_its_answer(serve: Any, behaviour: Any, words: str) -> None:
    _, server = serve(**behaviour)
    with pytest.raises(ServerError, match=words) as caught:
        ready.make_ready(SHORT, server, None, [], lambda line: None)
    assert caught.value.log == server.log


@pytest.mark.timeout(30)
def test_a_server_that_hangs_in_the_sweep_is_given_up_at_the_deadline_as_a_hang(serve: Any) -> None:
    _, server = serve(wait=20.0)
    with pytest.raises(ServerError, match="timed out") as caught:
        ready.make_ready(SHORT, server, None, [], lambda line: None)
    assert caught.value.exit_code == 124
    assert campaign.start_failure(caught.value).cause == "HANG_NO_PROGRESS"


def test_a_start_whose_patches_are_not_proved_is_refused(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfgate.proof.SETTLE_SECONDS", 0.0)
    _, server = serve()
    missing = PatchProof(("topk",), True, ready.counts_path(server.log), (1,), {"topk": 2}, 1)
    with pytest.raises(NotProved) as caught:
        ready.make_ready(SHORT, server, missing, [], lambda line: None)
    data = run(Script(refuse=caught.value))
    for point in data.points.values():
        found = point_results.unmeasured(point, [])
        assert found is not None
        assert found.outcome is Outcome.INVALID
        assert "topk" in found.evidence[0]
    assert data.starts == 1
    assert not any(p.attempts for p in data.points.values())


def test_counters_of_an_earlier_run_are_no_proof_of_this_one(tmp_path: Path) -> None:
    log = tmp_path / "server-start1.log"
    path = ready.clean_counts(log)
    old = path.with_name(f"{path.name}.123")
    old.write_text("{}")
    assert ready.clean_counts(log) == path
    assert not old.exists()
    assert path.is_relative_to(tmp_path)


def test_a_model_that_does_not_name_its_vocabulary_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ServerError, match="vocab_size"):
        ready.vocabulary(tmp_path)
    with pytest.raises(ServerError, match="vocab_size"):
        ready.vocabulary(tmp_path / "none")


def test_a_refusal_before_anything_was_started_gives_its_own_words_as_reason() -> None:
    data = run(Script(refuse=ServerError("the GPUs are in use: pid 5 (train.py) on GPU 0")))
    for point in data.points.values():
        assert point.failure is not None
        assert "pid 5 (train.py)" in point.failure.message
        assert "Nothing failed" not in point.failure.advice


def test_a_free_port_leaves_room_for_the_grpc_port_above_it() -> None:
    assert all(1024 < free_port() <= HIGHEST_PORT <= 65_535 - 10_000 for _ in range(100))
    with pytest.raises(ServerError, match="--port"):
        free_port(highest=10)
