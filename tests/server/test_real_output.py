"""The output check on real servers: a model against itself passes, against other weights it fails, whatever the speed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server import kit

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("real-server")]

FLOOR = 1e-3
"""nats. An fp32 server on a CPU is some 1e-6 from itself, and other weights are whole nats away."""


def weighted(folder: Path, seed: int) -> Path:
    """cpu-tiny with weights of its own, which tell tokens apart, and an output check of 16 steps."""
    table = f"[output]\nsteps = 16\nprompt_lengths = [5, 64, 130]\nfloor = {FLOOR}\n\n[limits]"
    changes = {
        'generator = "tiny-llama"': f'generator = "tiny-llama"\noptions = {{ seed = {seed} }}',
        'load_format = "dummy"': 'load_format = "auto"',
        "[limits]": table,
    }
    path = kit.quick_recipe(folder, **changes)
    # A start's time is not what this is about, and on a busy machine it takes minutes.
    path.write_text(re.sub(r"(?m)^((?:max_startup|start)_seconds) = \d+", r"\1 = 600", path.read_text()))
    return path


def against_itself(recipe: Path, report: Path) -> tuple[int, dict[str, Any]]:
    """The command's exit status and row."""
    command = [sys.executable, "-m", "perfgate", "output", "--recipe", str(recipe), "--against", str(recipe)]
    site = report.parent / "site"
    subprocess.run([sys.executable, kit.ROOT / "tools" / "gpu" / "make_entry_point.py", site], check=True, timeout=60)
    path = [str(site), str(kit.ROOT), str(kit.ROOT / "kernels"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([*command, "--report", str(report)], capture_output=True, text=True, env=env, timeout=1500)
    assert (report / "output.json").is_file(), done.stdout + done.stderr
    return done.returncode, json.loads((report / "output.json").read_text())


def test_a_model_answers_as_itself_by_the_command_without_a_measurement(tmp_path: Path) -> None:
    code, found = against_itself(weighted(tmp_path, seed=1), tmp_path / "report")
    assert code == 0, found
    assert found["outcome"] == "PASS"
    assert found["value"] <= found["bound"] == FLOOR
    assert "48 steps of 3 prompts" in found["why"]
    assert "deterministic" in found["why"]
    assert kit.servers(tmp_path / "report") == []


def test_weights_that_attention_does_not_reach_show_nothing(tmp_path: Path) -> None:
    """SGLang's invented ones are such: whatever a decode returned, the answers would be the same."""
    recipe = kit.quick_recipe(tmp_path)
    assert 'load_format = "dummy"' in recipe.read_text()
    code, found = against_itself(recipe, tmp_path / "report")
    assert (code, found["outcome"]) == (1, "INCONCLUSIVE"), found
    assert "another past moves the answers" in found["why"]


def scaled(folder: Path, **changes: str) -> Path:
    """cpu-tiny whose invented weights are of a model's size."""
    return kit.quick_recipe(folder, **{"[limits]": '[patch]\npatches = ["scaled_weights"]\n\n[limits]'}, **changes)


def test_scaled_weights_let_attention_reach_the_answers(tmp_path: Path) -> None:
    """The same recipe with them, so that the check shows something: the plug-in in a real server, without a GPU."""
    code, found = against_itself(scaled(tmp_path), tmp_path / "report")
    assert (code, found["outcome"]) == (0, "PASS"), found
    moved = re.search(r"another past moves its answers by ([\d.]+)", found["why"])
    assert moved
    assert float(moved[1]) > 0.1


def test_answers_of_a_server_without_the_patch_that_it_was_asked_for_are_none(tmp_path: Path) -> None:
    """It has no graphs and no warm-up, so that nothing could be proved before it answered."""
    recipe = scaled(tmp_path, **{"env = {": 'env = { SGLANG_PLUGINS = "another",'})
    code, found = against_itself(recipe, tmp_path / "report")
    assert (code, found["outcome"]) == (1, "MISSING"), found
    assert "scaled_weights" in found["why"]


def test_an_ab_run_fails_where_the_weights_are_others_though_the_speed_is_the_same(tmp_path: Path) -> None:
    new, old = weighted(tmp_path / "new", seed=2), weighted(tmp_path / "old", seed=1)
    arguments = ["--recipe", str(new), "--against", str(old), "--concurrency", "1"]
    found = kit.finish(kit.start(tmp_path, *arguments), tmp_path, seconds=1500)
    assert found.code == 1
    assert found.result is not None, found.text
    (row,) = [c for c in found.result["checks"] if c["name"] == "answers"]
    assert row["outcome"] == "INVALID", row
    assert row["value"] > 0.5  # nats: the old weights' best token means nothing to the new ones
    assert row["evidence"]
    assert row["advice"]
    assert found.result["outcome"] not in ("PASS", "IMPROVED")
    assert "INVALID answers: " in found.text
    assert kit.servers(found.report) == []
