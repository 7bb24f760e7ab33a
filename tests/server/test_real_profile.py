"""A real server that was made slower: found side by side with the other, and its profile says where the time went."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation" / "real"))

from arms import plugin_site

from perfgate.cpu_trace import OUTSIDE
from server import kit

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("real-server")]

PATIENT = {
    "noise = { throughput = 50, step_ms = 3 }": "noise = { throughput = 1, step_ms = 0.1 }",
}


def run(folder: Path, *arguments: str) -> kit.Outcome:
    return kit.finish(kit.start(folder, "--concurrency", "1", "--profile", *arguments), folder, 900)


def test_a_recording_keeps_where_the_time_goes(tmp_path: Path) -> None:
    recipe = kit.quick_recipe(tmp_path, **PATIENT)
    stored = ["--baselines", str(tmp_path / "baselines"), "--record", "--reason", "test"]
    found = run(tmp_path, "--recipe", str(recipe), *stored)
    assert found.code == 0, found.text
    (file,) = (tmp_path / "baselines" / "cpu-tiny").glob("*.json")
    kept = json.loads(file.read_text())["points"]["1"]
    assert [entry["outcome"] for entry in kept["history"]] == ["recorded"]
    assert kept["profile"]["device"] == "CPU"
    shares = kept["profile"]["by_category"]
    assert sum(shares.values()) == pytest.approx(1)
    # Such a small model's steps are mostly Python, more so where other work takes the cores away from it.
    assert shares["GEMM"] > 0.005
    assert shares["attention"] > 0
    assert shares["copies, views and indexing"] > 0.005


def test_a_slower_server_regresses_and_its_profile_says_where_the_time_went(tmp_path: Path) -> None:
    site = plugin_site(tmp_path / "site")
    old = kit.quick_recipe(tmp_path / "old", **PATIENT)
    # Three times the step, spent in no operator: beyond what a busy machine does to six pairs of samples.
    slowly = f'env = {{ PERFGATE_SLOWDOWN = "share=2.0", PYTHONPATH = "{site}:{kit.ROOT}:{kit.ROOT / "kernels"}", '
    new = kit.quick_recipe(tmp_path / "new", **PATIENT, **{"env = { ": slowly})
    found = run(tmp_path, "--recipe", str(new), "--against", str(old), "--samples", "6")
    assert found.code == 1
    assert found.verdicts() == {1: "REGRESSION"}, found.text
    assert found.result is not None
    profile = found.result["extra"]["profile"]
    assert profile["device"] == "CPU"
    assert profile["shares"][OUTSIDE] > profile["baseline_shares"][OUTSIDE] + 0.05
    said = f"C=1: more of the CPU time than before: {OUTSIDE}"
    assert any(note.startswith(said) for note in found.result["notes"]), found.text
    assert "Where the CPU time went" in (found.report / "report.html").read_text()
