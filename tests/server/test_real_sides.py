"""A/B on real servers, and a server that already runs: what differs is found, what is ours is ended, what is not is left."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate import host, recipe
from perfgate.server import Server
from perfgate.server import start as start_server
from perfgate.server import stop as stop_server
from server import kit

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("real-server")]
PAIRS = {"samples = 2\nmax_samples = 2": "samples = 4\nmax_samples = 8"}
"""Two pairs have one degree of freedom and settle nothing, however large the difference."""


def test_a_change_of_the_kernels_package_is_found_against_the_commit_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kit.checkout(tmp_path / "checkout")
    base = kit.git(root, "rev-parse", "HEAD")
    head = kit.slow_down(root)
    cache = tmp_path / "cache"
    monkeypatch.setenv("PERFGATE_CACHE", str(cache))
    monkeypatch.setenv("PERFGATE_LOCKS", str(cache / "locks"))
    chosen = ["--recipe", str(kit.quick_recipe(tmp_path, **PAIRS)), "--concurrency", "1"]
    chosen += ["--against-commit", base[:10]]
    process = kit.start(tmp_path, *chosen, root=root, environment={"PYTHONPATH": f"{root}{os.pathsep}{root}/kernels"})
    found = kit.finish(process, tmp_path)
    assert found.code == 1
    assert found.verdicts() == {1: "REGRESSION"}, found.text
    assert found.result is not None
    assert found.result["judged_by"] == "ab"
    assert found.result["commit"] == head[:12]
    assert found.result["extra"]["against"] == {"recipe": "cpu-tiny", "commit": base}
    assert f"judged against commit {base[:12]} ({base[:10]})" in "\n".join(found.result["notes"])
    (step,) = (m for m in found.point(1)["metrics"] if m["name"] == "step_time")
    assert step["value"] - step["baseline"] > 15, "the new side waits for 20 ms a step, and the old does not"
    assert not list(cache.glob("against*")), "what was built is gone"
    assert kit.git(root, "status", "--porcelain") == ""
    assert kit.git(root, "worktree", "list").count("\n") == 0
    assert kit.servers(found.report) == kit.servers(found.report / "against") == []


def test_a_baseline_of_two_starts_keeps_their_samples_apart(tmp_path: Path) -> None:
    chosen = [
        "--recipe",
        str(kit.quick_recipe(tmp_path)),
        "--concurrency",
        "1",
        "--baselines",
        str(tmp_path / "baselines"),
    ]
    found = kit.run(tmp_path, *chosen, "--starts", "2", "--record", "--reason", "for the tests")
    assert found.code == 0, found.text
    (path,) = (tmp_path / "baselines" / "cpu-tiny").glob("*.json")
    samples = json.loads(path.read_text())["points"]["1"]["metrics"]["throughput"]["samples"]
    assert [s["server_start"] for s in samples] == [1, 1, 2, 2]
    assert len(list(found.report.glob("server-start*.log"))) == 2
    assert kit.servers(found.report) == []


def slower(folder: Path, **changes: str) -> Path:
    """The quick recipe with 20 ms more a step, by a plug-in that its environment names."""
    env = f'env = {{ CHANGE_STEP_SECONDS = "0.02", PYTHONPATH = "{os.environ.get("PYTHONPATH", "")}{os.pathsep}{kit.SLOW}", '
    new = kit.quick_recipe(folder, **changes, **{"env = { ": env, 'name = "cpu-tiny"': 'name = "cpu-tiny-slow"'})
    return new.rename(new.with_name("cpu-tiny-slow.toml"))


def test_sides_that_take_turns_find_it_with_one_server_at_a_time(tmp_path: Path) -> None:
    old, new = kit.quick_recipe(tmp_path / "old"), slower(tmp_path / "new")
    found = kit.run(
        tmp_path,
        "--recipe",
        str(new),
        "--concurrency",
        "1",
        "--against",
        str(old),
        "--starts",
        "4",  # three whose old side takes 2.4, 2.4 and 1.4 ms, as a virtual machine did once, leave even tenfold steps open
        "--order-seed",
        "1",
    )
    assert found.code == 1
    assert found.verdicts() == {1: "REGRESSION"}, found.text
    assert found.result is not None
    assert found.result["extra"]["against"] == {"recipe": "cpu-tiny", "starts": 4}
    assert "8 pairs of 4 starts of each side" in found.point(1)["why"]
    assert any("the sides took turns, one server at a time" in note for note in found.result["notes"])
    spans = []
    for side in (found.report, found.report / "against"):
        logs = sorted(side.glob("server-start*.log"))
        assert len(logs) == 4
        for log in logs:
            times = re.findall(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", log.read_text(errors="replace"))
            spans.append((times[0], times[-1]))
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans)), "never two servers at once"
    assert kit.servers(found.report) == kit.servers(found.report / "against") == []


def test_a_slower_recipe_is_found_against_the_one_that_it_came_from(tmp_path: Path) -> None:
    old = kit.quick_recipe(tmp_path / "old")
    new = slower(tmp_path / "new", **PAIRS)
    found = kit.run(tmp_path, "--recipe", str(new), "--concurrency", "1", "--against", str(old))
    assert found.code == 1
    assert found.verdicts() == {1: "REGRESSION"}, found.text
    assert found.result is not None
    assert found.result["extra"]["against"] == {"recipe": "cpu-tiny"}
    assert (found.report / "server-start1.log").is_file()
    assert (found.report / "against" / "server-start1.log").is_file()
    assert kit.servers(found.report) == kit.servers(found.report / "against") == []


def test_a_commit_that_does_not_exist_is_told_before_anything_is_built(tmp_path: Path) -> None:
    found = kit.run(tmp_path, "--against-commit", "0" * 40)
    assert found.code != 0
    assert "no such commit here" in found.text
    assert "Traceback" not in found.text
    both = kit.run(tmp_path, "--against-commit", "HEAD", "--against", "cpu-tiny")
    assert "not both: one difference at a time" in both.text


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """A server that someone else started, and the recipe that describes it."""
    file = kit.quick_recipe(tmp_path / "theirs")
    theirs = recipe.load(file)
    model = host.model_folder(theirs)
    server = start_server(theirs, model, tmp_path / "theirs" / "server.log", tmp_path / "theirs" / "ledger")
    yield file, server
    stop_server(server, tmp_path / "theirs" / "ledger", 10)


def test_a_server_that_already_runs_is_measured_and_left_running(running: tuple[Path, Server], tmp_path: Path) -> None:
    file, server = running
    chosen = ["--recipe", str(file), "--concurrency", "1", "--baselines", str(tmp_path / "none")]
    theirs = ["--server-url", server.base_url, "--tokenizer", str(server.model)]
    found = kit.run(tmp_path, *chosen, *theirs)
    assert found.code == 0, found.text
    assert found.verdicts() == {1: "PASS"}
    assert found.result is not None
    assert f"measured a server that already ran: {server.base_url}" in found.result["notes"]
    assert not list(found.report.glob("server-start*.log"))
    assert server.alive()
    # Another description than what runs there is refused, and nothing is measured.
    other = kit.quick_recipe(tmp_path / "other", **{"max_total_tokens = 65536": "max_total_tokens = 32768"})
    wrong = kit.run(tmp_path / "wrong", "--recipe", str(other), "--concurrency", "1", *theirs)
    assert wrong.code == 1
    assert wrong.verdicts() == {1: "MISSING"}, wrong.text
    assert "max_total_tokens is 65536, the recipe asks for 32768" in wrong.point(1)["why"]
    assert server.alive()
