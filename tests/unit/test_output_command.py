"""``perfgate output`` counts answers only of a server whose replayed graphs are seen to hold the patches, on either side."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfgate import output_command, proof, recipe, replay
from perfgate.recipe import Recipe
from perfgate.server.lifecycle import NotProved
from perfgate.validity import Problem

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "v4mini-answers-patched.toml")


class Stage:
    """The parts of the command beside the proof: a server that is up at once. ``order`` is what was done with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Path, sizes: tuple[int, ...], counted: list[str]) -> None:
        self.order: list[str] = []
        self.log, self.folder = log, Path()
        self.unproved: list[str] = []
        log.write_text("ready\n")
        server = SimpleNamespace(log=log, model=None, info={}, pids=lambda: set())
        made = proof.PatchProof(proof.asked(RECIPE), True, log.parent / "c", sizes, {}, 2)
        replaced: dict[str, Any] = {
            "start": lambda *unused: server,
            "stop": lambda *unused: self.order.append("stop"),
            "model_folder": lambda chosen: log.parent,
            "start_log": lambda one: "",
        }
        for name, value in replaced.items():
            monkeypatch.setattr(output_command, name, value)
        monkeypatch.setattr(output_command.ready, "make_ready", lambda *unused: [])
        monkeypatch.setattr(proof.PatchProof, "of", lambda *unused: made)
        monkeypatch.setattr(proof.PatchProof, "settled", lambda one, **unused: [one.unproved(m) for m in counted])
        monkeypatch.setattr(replay, "prove", self.prove)

    def prove(self, server: object, made: proof.PatchProof, folder: Path) -> list[Problem]:
        self.order.append("trace")
        self.folder = folder
        return [made.unproved(message) for message in self.unproved]

    def answer(self, chosen: Recipe = RECIPE) -> None:
        gpus: Any = SimpleNamespace(before_start=lambda: None, servers=[])
        with output_command._server(chosen, self.log, gpus):
            self.order.append("answers")


def test_replay_is_traced_once_the_answers_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage(monkeypatch, tmp_path / "new.log", (1, 16), [])
    stage.answer()
    assert stage.order == ["answers", "trace", "stop"]
    assert stage.folder == tmp_path / "traces" / "new"


def test_answers_of_a_server_whose_replay_lacks_a_patch_are_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = Stage(monkeypatch, tmp_path / "old.log", (1, 16), [])
    stage.unproved = ["NOT_IN_TRACE: topk"]
    with pytest.raises(NotProved, match="NOT_IN_TRACE: topk"):
        stage.answer()
    assert stage.order == ["answers", "trace", "stop"]


def test_what_the_counters_refute_needs_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage(monkeypatch, tmp_path / "new.log", (1, 16), ["WRONG_COUNT: topk"])
    with pytest.raises(NotProved, match="WRONG_COUNT: topk"):
        stage.answer()
    assert stage.order == ["answers", "stop"]


def test_a_server_without_graphs_has_no_replay_to_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stage = Stage(monkeypatch, tmp_path / "new.log", (), [])
    stage.answer()
    assert stage.order == ["answers", "stop"]
