"""Ctrl-C, or a time limit that sends the same: what runs for the gate ends with it, and what was measured is kept."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from perfgate import ab, campaign, closing, gate, proof, recipe, replay
from perfgate.closing import StartRecord
from perfgate.host import LocalHost
from perfgate.result import Outcome
from perfgate.run_ab import Compare
from perfgate.run_single import Single
from perfgate.runs import Run
from perfgate.server import ServerError
from perfgate.workload.client import Client

PATCHED = recipe.load(Path(__file__).parents[2] / "recipes" / "v4mini-patched.toml")


@pytest.mark.timeout(120)
def test_the_client_of_an_interrupted_sample_asks_the_server_nothing_more(tmp_path: Path) -> None:
    package = tmp_path / "sglang" / "benchmark"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "serving.py").write_text("import time\n\ndef cli_main():\n    time.sleep(300)\n")
    path = os.pathsep.join([str(tmp_path), str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    seen: list[int] = []

    def tick(elapsed: float) -> None:
        seen.extend(client.pids() - {client._process.pid})
        raise KeyboardInterrupt

    with Client(tmp_path / "preload.log", {"PYTHONPATH": path}) as client:
        with pytest.raises(KeyboardInterrupt):
            client.run([], tmp_path / "out.jsonl", tmp_path / "client.txt", 300, tick)
        assert client.pids() == {client._process.pid}, (
            "its number may be another process's when the run closes the client"
        )
        (child,) = seen
        deadline = time.monotonic() + 10
        while psutil.pid_exists(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not psutil.pid_exists(child), "the client went on, and a server that drains its requests waits for it"


def host(tmp_path: Path) -> LocalHost:
    """A host whose server is up, with the patches of one start still to be shown by a trace."""
    made = LocalHost.__new__(LocalHost)
    made._options, made._show = SimpleNamespace(report=tmp_path), lambda line: None  # type: ignore[assignment]
    made._lost, made.notes = False, []
    made.server = SimpleNamespace(owned=True, alive=lambda: True)  # type: ignore[assignment]
    asked = proof.PatchProof(proof.asked(PATCHED), True, tmp_path / "counts", (1, 16, 64), {}, 1)
    made.starts = [StartRecord(1, None, asked)]
    return made


def test_an_interruption_in_the_proof_by_trace_keeps_the_measurement_and_leaves_the_patches_unproved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*unused: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "prove", interrupt)
    run, one = Run.__new__(Run), host(tmp_path)
    run.interrupted = None
    run.prove_replay(one)
    assert isinstance(run.interrupted, KeyboardInterrupt)
    (problem,) = one.starts[0].replayed
    assert problem.invalid
    assert "interrupted before a trace" in problem.message


def test_a_trace_that_shows_the_patches_leaves_nothing_unproved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "prove", lambda *unused: [])
    one = host(tmp_path)
    one.prove_replay()
    assert one.starts[0].replayed == []
    assert one.notes == []


def test_the_trace_also_says_how_long_a_step_keeps_the_gpu_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(server: object, asked: object, folder: Path) -> list[object]:
        folder.mkdir(parents=True)
        events = [{"cat": "kernel", "ts": 10.0 * i, "dur": 5.0, "args": {"correlation": 7}} for i in range(20)]
        (folder / "1.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
        return []

    monkeypatch.setattr(replay, "prove", prove)
    one = host(tmp_path)
    one.prove_replay()
    (note,) = one.notes
    assert "busy for 0.1 ms" in note


def test_ctrl_c_in_the_proof_of_one_turn_ends_the_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept for later, it would be forgotten for hours: the next starts would be measured, and none of them proved."""

    def interrupt(*unused: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "prove", interrupt)
    run = Compare.__new__(Compare)
    run.interrupted = None
    run.host, run._old_host = host(tmp_path), host(tmp_path)
    run.host.live = None
    run.context = SimpleNamespace(measure=lambda sampler: None)  # type: ignore[assignment]
    run._answers = SimpleNamespace(ask=lambda host: None, hold=lambda host: None)  # type: ignore[assignment]
    for side in (run.host, run._old_host):
        with pytest.raises(KeyboardInterrupt):
            run._visit(SimpleNamespace(host=side))  # type: ignore[arg-type]


def test_a_server_that_is_gone_before_its_trace_is_unproved_and_has_a_row_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = host(tmp_path)
    one.server = SimpleNamespace(owned=True, alive=lambda: False, exit_code=lambda: -11)  # type: ignore[assignment]
    one.starts[0].log = tmp_path / "server.log"
    one.starts[0].log.write_text("Segmentation fault\n")
    one.prove_replay()
    (problem,) = one.starts[0].replayed
    assert problem.invalid
    (row,) = closing.deaths(one.starts, "new ")
    assert (row.name, row.outcome, row.evidence) == ("new server start 1", Outcome.MISSING, ["Segmentation fault"])
    assert "exit code -11" in row.why


def test_a_server_that_was_lost_in_a_sample_is_not_told_a_second_time(tmp_path: Path) -> None:
    one = host(tmp_path)
    one.server = SimpleNamespace(owned=True, alive=lambda: False, exit_code=lambda: -11)  # type: ignore[assignment]
    one._lost = True
    one.prove_replay()
    assert closing.deaths(one.starts) == []
    assert one.starts[0].replayed == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), ServerError("no more disk")])
def test_a_run_cut_short_after_its_last_sample_has_a_row_that_fails_it(stop: BaseException) -> None:
    def measure() -> None:
        raise stop

    run = Run.__new__(Run)
    run.interrupted = run.stopped = None
    run.gpus = SimpleNamespace(needed=True)  # type: ignore[assignment]
    run.order = campaign.Order((1,), 1, 1, 0)
    assert run.whole() == []
    run.guarded(campaign.CampaignData({}), measure)
    (row,) = run.whole()
    assert row.outcome is Outcome.MISSING
    assert row.why == ("interrupted before its end" if run.interrupted else "no more disk")


@pytest.mark.parametrize("kind", [Single, Compare])
def test_both_kinds_of_run_hand_those_rows_and_the_autotuners_choices_to_the_result(
    kind: type[Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chose = "Triton autotuning for function decode,\nwith key as (1,),\nfinished after 0.5s,\nbest config selected: BLOCK: {};\n"
    logs = [tmp_path / "narrow.log", tmp_path / "wide.log"]
    for log, block in zip(logs, (16, 32), strict=True):
        log.write_text(chose.format(block))
    handed: dict[str, Any] = {}
    monkeypatch.setattr(gate, "result", lambda *unused, **named: handed.update(named))
    order = campaign.Order((1,), 1, 1, 0)

    def side() -> Any:
        gone = [StartRecord(1, logs[0]), StartRecord(2, logs[1], ended="gone")]
        return SimpleNamespace(starts=gone, notes=[], facts=lambda: None, prove_replay=lambda: None)

    def measure(*unused: object) -> None:
        raise KeyboardInterrupt

    made: Any = kind.__new__(kind)
    nothing = SimpleNamespace(checks=list, as_extra=dict, notes=list, seconds=0.0)
    empty = campaign.CampaignData({})
    made.__dict__.update(
        options=SimpleNamespace(
            recipe=PATCHED, record=True, server_url=None, left_out=[], command=(), against_commit=None
        ),
        data=empty if kind is Single else ab.AbData(empty, empty),
        against=PATCHED,
        host=side(),
        _old_host=side(),
        shared=SimpleNamespace(release=list),
        _old_shared=SimpleNamespace(release=list),
        gpus=SimpleNamespace(needed=True),
        order=order,
        context=nothing,
        profiles=nothing,
        _answers=nothing,
        _sides=[],
        rounds=None,
        yardstick=lambda: SimpleNamespace(judged_by="baseline"),
        _measure=measure,
        interrupted=None,
        stopped=None,
        started_at=0.0,
        began=0.0,
    )
    made.run()
    sides = [""] if kind is Single else ["old ", "new "]
    assert [row.name for row in handed["checked"]] == [*(f"{s}server start 2" for s in sides), "the whole run"]
    (note,) = [note for note in handed["notes"] if "autotuner" in note]
    assert f"BLOCK: 32 in {', '.join(f'{s}start 2' for s in sides)}" in note
