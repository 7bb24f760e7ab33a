"""The context sweep on a real server: every length measured after the points, on the same server, and judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfgate import context_report
from perfgate.recipe import Context
from server import kit

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("real-server")]

LENGTHS = [64, 256, 512, 1024]
TABLE = f"""[context]
lengths = {LENGTHS}
output_len = 16
prompts = 2
repeats = 2
knee = 400
us_per_1000_tokens = 0.000001

[limits]"""


def test_a_run_measures_every_length_after_its_points_and_judges_the_slopes_of_just_these_readings(
    tmp_path: Path,
) -> None:
    recipe = kit.quick_recipe(tmp_path, **{"[limits]": TABLE})
    # A start's time is not what this is about, and on a busy machine it takes minutes.
    recipe.write_text(re.sub(r"(?m)^((?:max_startup|start)_seconds) = \d+", r"\1 = 600", recipe.read_text()))
    arguments = ["--recipe", str(recipe), "--baselines", str(tmp_path / "none"), "--concurrency", "1"]
    found = kit.finish(kit.start(tmp_path, *arguments), tmp_path, seconds=1200)
    assert found.result is not None, found.text
    rows = {c["name"]: c for c in found.result["checks"] if c["name"].startswith("context")}
    assert list(rows) == ["context up to 400 tokens", "context beyond 400 tokens"]
    taken = found.result["extra"]["context"]["step_ms"]
    assert {int(n): len(steps) for n, steps in taken.items()} == dict.fromkeys(LENGTHS, 2)
    # A busy machine's slopes may come out anywhere, below 0 too: the rows must say what these very readings say.
    table = Context(lengths=LENGTHS, output_len=16, prompts=2, repeats=2, knee=400, us_per_1000_tokens=1e-6)
    told = context_report.rows(table, {int(n): steps for n, steps in taken.items()})
    assert [(row.name, row.outcome) for row in told] == [(name, row["outcome"]) for name, row in rows.items()]
    assert "MISSING" not in {row["outcome"] for row in rows.values()}, found.text
    assert found.code == (0 if all(row.outcome.passes for row in told) else 1), found.text
    assert all(step > 0 for steps in taken.values() for step in steps)
    # One for the warm-up of the point, its samples, and three of each length: all on one server.
    assert len(list((found.report / "samples").glob("start1-*-c1.jsonl"))) >= 1 + 2 + 3 * len(LENGTHS)
    assert len(list(found.report.glob("server-start*.log"))) == 1
