"""The warm-up on a real server: single prompts of every length, and bursts that SGLang takes in at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from server import kit

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("real-server")]

TABLE = """[warmup]
prompt_lengths = [8, 40]
burst_sizes = [1, 8]

[limits]"""


def test_prompts_and_bursts_are_sent_before_the_first_sample_and_told(tmp_path: Path) -> None:
    recipe = kit.quick_recipe(tmp_path, **{"[limits]": TABLE})
    recipe.write_text(re.sub(r"(?m)^((?:max_startup|start)_seconds) = \d+", r"\1 = 600", recipe.read_text()))
    arguments = ["--recipe", str(recipe), "--baselines", str(tmp_path / "none"), "--concurrency", "1"]
    found = kit.finish(kit.start(tmp_path, *arguments), tmp_path, seconds=1200)
    assert found.result is not None, found.text
    assert [p["outcome"] for p in found.result["points"]] == ["PASS"], found.text
    notes = "\n".join(found.result["notes"])
    assert re.search(r"warm-up sweep: \d rounds", notes), notes
    assert "warm-up bursts: 1 rounds" in notes  # no compile cache to look into
    (log,) = found.report.glob("server-start*.log")
    batches = [int(n) for n in re.findall(r"Prefill batch, #new-seq: (\d+)", log.read_text())]
    assert max(batches) >= 4, "a burst of eight was never taken in together"
