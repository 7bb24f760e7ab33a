"""What makes results comparable: the same machine is the same at every start, and a copy knows its commit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from gpu_kit import FakeNvml
from judging import samples

from perfgate import fingerprint, gate, gpu, local_history, recipe
from perfgate.baseline import BaselineFile, load, record
from perfgate.baseline.differences import incomparable
from perfgate.result import Outcome
from perfgate.verdict import Verdict
from perfgate.yardstick import Yardstick

ROOT = Path(__file__).parents[2]


def test_a_gpu_host_whose_memory_grows_as_it_is_used_stays_the_same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for total in (31, 252):
        monkeypatch.setattr(psutil, "virtual_memory", lambda total=total: SimpleNamespace(total=total * 2**30))
        found.append(fingerprint.collect({}, gpu.describe(FakeNvml())))
    assert found[0] == found[1]


def test_a_copy_without_git_has_the_commit_that_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFGATE_COMMIT", raising=False)
    assert fingerprint.git_commit(tmp_path) is None
    monkeypatch.setenv("PERFGATE_COMMIT", "0123456789ab")
    assert fingerprint.git_commit(tmp_path) == "0123456789ab"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fingerprint.git_commit(ROOT) == "0123456789ab"
    monkeypatch.undo()
    assert fingerprint.git_commit(ROOT) != "0123456789ab"


TINY = recipe.load(ROOT / "recipes" / "v4mini-fallback.toml")


def edited(**changes: Any) -> recipe.Recipe:
    return TINY.model_copy(update=changes)


def recorded(tmp_path: Path, machine: dict[str, Any]) -> BaselineFile:
    path = tmp_path / "h.json"
    points = {c: samples([1000.0] * 6, c) for c in TINY.concurrencies}
    record(path, recipe="r", hardware="h", points=points, fingerprint=machine, recorded_at="2026-11-30", reason="first")
    return load(path)


def verdict(file: BaselineFile, now: recipe.Recipe, machine: dict[str, Any]) -> Verdict:
    return Yardstick(now, file, machine, False, 5, 10, 3).judge(16, samples([1500.0] * 6))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model": TINY.model.model_copy(update={"options": {"layers": 4}})}, "recipe.model.options.layers: "),
        ({"workload": TINY.workload.model_copy(update={"input_len": 65})}, "recipe.input_len: "),
        ({"workload": TINY.workload.model_copy(update={"output_len": 7})}, "recipe.output_len: "),
        ({"workload": TINY.workload.model_copy(update={"prompts_per_request": 9})}, "recipe.prompts: "),
        ({"points": [p.model_copy(update={"num_prompts": 999}) for p in TINY.points]}, "recipe.prompts: "),
    ],
)
def test_a_recipe_that_measures_something_else_is_not_compared_with_its_old_baseline(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    file = recorded(tmp_path, fingerprint.collect({}, recipe=TINY))
    now = edited(**changes)
    found = verdict(file, now, fingerprint.collect({}, recipe=now))
    assert found.outcome is Outcome.NO_BASELINE
    assert named in found.why
    assert "hardware" not in found.why


def test_samples_limits_and_other_points_of_a_recipe_do_not_orphan_a_baseline(tmp_path: Path) -> None:
    file = recorded(tmp_path, fingerprint.collect({}, recipe=TINY))
    more = TINY.points[0].model_copy(update={"concurrency": 8})
    now = edited(
        points=[more, *(p for p in TINY.points if p.concurrency == 16)],
        workload=TINY.workload.model_copy(update={"samples": 4, "max_samples": 40}),
        limits=TINY.limits.model_copy(update={"start_seconds": 7.0}),
    )
    assert verdict(file, now, fingerprint.collect({}, recipe=now)).outcome is Outcome.IMPROVED


def test_a_baseline_from_before_recipes_were_kept_is_used_and_a_note_says_what_it_cannot_tell(tmp_path: Path) -> None:
    file = recorded(tmp_path, fingerprint.collect({}))
    here = fingerprint.collect({}, recipe=TINY)
    assert verdict(file, TINY, here).outcome is Outcome.IMPROVED
    (note,) = gate.recipe_unknown(Yardstick(TINY, file, here, False, 5, 10, 3))
    assert "C=16, C=64 does not say what model and workload it was measured with" in note
    assert gate.fingerprint_differences(Yardstick(TINY, file, here, False, 5, 10, 3)) == []
    newer = Yardstick(TINY, recorded(tmp_path, here), here, False, 5, 10, 3)
    assert gate.recipe_unknown(newer) == []


@pytest.mark.parametrize("path", sorted((ROOT / "baselines").glob("v4mini*/*.json")), ids=lambda p: p.parent.name)
def test_the_committed_baselines_stay_usable(path: Path) -> None:
    file = load(path)
    now = recipe.load(ROOT / "recipes" / f"{path.parent.name}.toml")
    for c in file.concurrencies:
        known = file.point(c).fingerprint
        assert incomparable(known, {**known, "recipe": fingerprint.asked(now)}, c) == []


def test_a_baseline_that_does_not_say_where_it_was_recorded_is_compared_with_no_machine(tmp_path: Path) -> None:
    found = verdict(recorded(tmp_path, {}), TINY, fingerprint.collect({}, recipe=TINY))
    assert found.outcome is Outcome.NO_BASELINE
    assert "it does not say on what machine" in found.why


def test_a_models_folder_is_known_by_its_name_wherever_it_lies() -> None:
    sides = [edited(model=recipe.Model(path=Path(p))) for p in ("/a/V4", "/mnt/b/V4", "/a/V3")]
    first, moved, other = (fingerprint.asked(side) for side in sides)
    assert first == moved != other


def test_what_a_recipe_asks_leaves_this_machines_own_history_readable() -> None:
    before, now = (fingerprint.collect({}, recipe=asked) for asked in (None, TINY))
    assert local_history.state(TINY, before) == local_history.state(TINY, now)
