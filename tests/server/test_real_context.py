"""The context sweep on a real server: every length measured after the points, and a bound that cannot be kept fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server import kit

pytestmark = pytest.mark.xdist_group("real-server")

LENGTHS = [64, 256, 512, 1024]
TABLE = f"""[context]
lengths = {LENGTHS}
output_len = 16
prompts = 2
repeats = 2
knee = 400
us_per_1000_tokens = 0.000001

[limits]"""


def test_a_run_fits_its_step_times_against_context_and_no_slope_passes_a_bound_of_nothing(tmp_path: Path) -> None:
    recipe = kit.quick_recipe(tmp_path, **{"[limits]": TABLE})
    # A start's time is not what this is about, and on a busy machine it takes minutes.
    recipe.write_text(re.sub(r"(?m)^((?:max_startup|start)_seconds) = \d+", r"\1 = 600", recipe.read_text()))
    arguments = ["--recipe", str(recipe), "--baselines", str(tmp_path / "none"), "--concurrency", "1"]
    found = kit.finish(kit.start(tmp_path, *arguments), tmp_path, seconds=1200)
    assert found.code == 1
    assert found.result is not None, found.text
    rows = {c["name"]: c for c in found.result["checks"] if c["name"].startswith("context")}
    assert list(rows) == ["context up to 400 tokens", "context beyond 400 tokens"]
    # Slopes of a noisy machine: above the bound, or an interval that spans it or lies below 0 by chance.
    assert all(row["value"] is not None for row in rows.values()), found.text
    assert rows["context beyond 400 tokens"]["outcome"] in ("REGRESSION", "INCONCLUSIVE"), found.text
    taken = found.result["extra"]["context"]["step_ms"]
    assert {int(n): len(steps) for n, steps in taken.items()} == dict.fromkeys(LENGTHS, 2)
    assert all(step > 0 for steps in taken.values() for step in steps)
    # One for the warm-up of the point, its samples, and three of each length: all on one server.
    assert len(list((found.report / "samples").glob("start1-*-c1.jsonl"))) >= 1 + 2 + 3 * len(LENGTHS)
    assert len(list(found.report.glob("server-start*.log"))) == 1
