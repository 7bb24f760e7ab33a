"""Kernel times against their baseline: slower fails, faster says so, noise does neither, and nothing vanishes."""

from __future__ import annotations

import json

import pytest
from kernelbench_kit import DECODE, FINGERPRINT, HC, ours, run, stored

from perfgate.baseline import BaselineError
from perfgate.kernelbench import baseline, cli, judge, recording
from perfgate.kernelbench.shapes import TopKShape
from perfgate.result import Outcome


def outcomes(path, *runs):
    return {one.key: one.outcome for one in judge.judge(runs, baseline.load(path))}


@pytest.mark.parametrize(
    ("us", "outcome"),
    [
        (50.0, Outcome.PASS),
        (50.3, Outcome.PASS),
        (50.9, Outcome.INCONCLUSIVE),
        (51.5, Outcome.REGRESSION),
        (53.0, Outcome.REGRESSION),
        (100.0, Outcome.REGRESSION),
        (48.5, Outcome.IMPROVED),
    ],
)
def test_a_time_is_judged_in_both_directions(kernels_recorded, us, outcome):
    found = outcomes(kernels_recorded, ours(us, seed=7))
    assert found == {DECODE.key: outcome, HC.key: Outcome.PASS}


def test_a_third_of_a_microsecond_is_no_regression_of_a_short_kernel_in_one_run(kernels_recorded):
    assert outcomes(kernels_recorded, ours(50.0, 9.35, seed=1))[HC.key] is Outcome.INCONCLUSIVE
    assert outcomes(kernels_recorded, ours(50.0, 10.0, seed=1))[HC.key] is Outcome.REGRESSION


def test_noise_larger_than_the_question_is_neither_pass_nor_regression(kernels_recorded):
    found = [outcomes(kernels_recorded, ours(50.0, noise=0.2, seed=seed))[DECODE.key] for seed in range(20)]
    assert Outcome.REGRESSION not in found
    assert found.count(Outcome.INCONCLUSIVE) >= 15


def test_runs_that_differ_from_each_other_widen_the_interval(tmp_path):
    path = tmp_path / "kernels" / "x.json"
    apart = [ours(us, seed=i) for i, us in enumerate((45.0, 50.0, 55.0))]
    recording.record(path, apart, reason="first", recorded_at="2026-11-30")
    assert outcomes(path, ours(54.0, seed=9))[DECODE.key] is Outcome.INCONCLUSIVE


def test_several_runs_of_a_change_are_judged_with_their_own_differences(kernels_recorded):
    apart = [ours(us, seed=i) for i, us in enumerate((52.0, 55.0, 58.0))]
    assert outcomes(kernels_recorded, *apart)[DECODE.key] is Outcome.INCONCLUSIVE
    alike = [ours(55.0, seed=i) for i in range(3)]
    assert outcomes(kernels_recorded, *alike)[DECODE.key] is Outcome.REGRESSION


def test_a_recorded_shape_that_was_not_timed_is_missing(kernels_recorded):
    found = outcomes(kernels_recorded, run({(HC, "ours"): 9.0}, seed=2))
    assert found == {HC.key: Outcome.PASS, DECODE.key: Outcome.MISSING}


def test_a_peers_time_does_not_stand_in_for_ours(kernels_recorded):
    found = outcomes(kernels_recorded, run({(HC, "ours"): 9.0, (DECODE, "FlashMLA"): 50.0}, seed=2))
    assert found[DECODE.key] is Outcome.MISSING


def test_a_quick_run_answers_for_the_quick_share_alone(tmp_path):
    path, rare = tmp_path / "kernels" / "x.json", TopKShape(2, 2048)
    recording.record(path, [run({(HC, "ours"): 9.0, (rare, "ours"): 5.0})], reason="first", recorded_at="2026-11-30")
    assert rare.key not in outcomes(path, run({(HC, "ours"): 9.0}, seed=1, quick=True))
    assert outcomes(path, run({(HC, "ours"): 9.0}, seed=1))[rare.key] is Outcome.MISSING


def test_a_shape_without_a_baseline_does_not_pass(kernels_recorded):
    rare = TopKShape(2, 2048)
    found = outcomes(kernels_recorded, run({(DECODE, "ours"): 50.0, (HC, "ours"): 9.0, (rare, "ours"): 5.0}))
    assert found[rare.key] is Outcome.NO_BASELINE
    assert set(outcomes(kernels_recorded.parent / "none.json", ours(50.0)).values()) == {Outcome.NO_BASELINE}


def test_a_throttled_time_is_invalid(kernels_recorded):
    assert set(outcomes(kernels_recorded, ours(50.0, throttled=("power cap",))).values()) == {Outcome.INVALID}


def test_another_driver_or_compiler_is_not_compared_and_a_peers_version_is(kernels_recorded):
    other = {**FINGERPRINT, "software": {**FINGERPRINT["software"], "triton": "3.7.0"}}
    found = judge.judge([ours(90.0, fingerprint=other)], baseline.load(kernels_recorded))
    assert {one.outcome for one in found} == {Outcome.NO_BASELINE}
    assert "software.triton: '3.6.0' -> '3.7.0'" in found[0].why
    peer = {**FINGERPRINT, "software": {**FINGERPRINT["software"], "sgl-kernel": "9"}}
    assert outcomes(kernels_recorded, ours(90.0, fingerprint=peer))[DECODE.key] is Outcome.REGRESSION


def test_nothing_measured_is_missing():
    assert [one.outcome for one in judge.judge([run({})], None)] == [Outcome.MISSING]


def test_a_slower_time_is_recorded_with_a_reason_alone_and_keeps_what_it_replaces(kernels_recorded):
    before = kernels_recorded.read_bytes()
    with pytest.raises(BaselineError, match="give the reason"):
        recording.record(kernels_recorded, [ours(60.0)], reason=" ", recorded_at="2026-12-01")
    assert kernels_recorded.read_bytes() == before
    done = recording.record(kernels_recorded, [ours(60.0, 8.0)], reason="accuracy", recorded_at="2026-12-01")
    assert (done.loosened, done.tightened, done.new) == ((DECODE.key,), (HC.key,), ())
    point = baseline.load(kernels_recorded).points[DECODE.key]
    assert [(round(f.time_us), f.reason, f.replaced_because) for f in point.replaced] == [(50, "first", "accuracy")]
    assert round(point.loosened.time_us) == 50


def test_the_mark_of_a_looser_time_stays_until_the_best_is_reached_again(kernels_recorded):
    for us, reason in ((60.0, "accuracy"), (55.0, "a little better")):
        recording.record(kernels_recorded, [ours(us)], reason=reason, recorded_at="2026-12-01")
    mark = baseline.load(kernels_recorded).points[DECODE.key].loosened
    assert (round(mark.time_us), mark.reason) == (50, "accuracy")
    recording.record(kernels_recorded, [ours(49.0)], reason="", recorded_at="2026-12-02")
    assert baseline.load(kernels_recorded).points[DECODE.key].loosened is None


def test_shapes_that_were_not_timed_keep_their_baseline(kernels_recorded):
    recording.record(kernels_recorded, [run({(HC, "ours"): 8.0})], reason="", recorded_at="2026-12-01")
    assert round(baseline.load(kernels_recorded).points[DECODE.key].time_us.median) == 50


@pytest.mark.parametrize("reason", ["throttled", "nothing", "two cards"])
def test_what_cannot_be_a_baseline_is_not_recorded(tmp_path, reason):
    other = {**FINGERPRINT, "hardware": {"gpus": 1, "gpu_name": "other"}}
    runs = {
        "throttled": [ours(50.0, throttled=("power cap",))],
        "nothing": [run({})],
        "two cards": [ours(50.0), ours(50.0, fingerprint=other)],
    }[reason]
    with pytest.raises(BaselineError):
        recording.record(tmp_path / "x.json", runs, reason="first", recorded_at="2026-11-30")
    assert not (tmp_path / "x.json").exists()


def test_a_baseline_moved_by_hand_is_refused(kernels_recorded):
    content = json.loads(kernels_recorded.read_text())
    content["points"][DECODE.key]["time_us"]["median"] = 70.0
    kernels_recorded.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match="edited by hand"):
        baseline.load(kernels_recorded)
    content["points"] = {HC.key: content["points"][DECODE.key] | {"time_us": content["points"][HC.key]["time_us"]}}
    kernels_recorded.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match="edited by hand"):
        baseline.load(kernels_recorded)


def test_the_command_records_judges_and_fails_on_a_slower_run(tmp_path, capsys):
    files = {}
    for name, us in (("first", 50.0), ("same", 50.0), ("slow", 60.0)):
        files[name] = tmp_path / f"{name}.json"
        times = {(DECODE, "ours"): us, (DECODE, "FlashMLA"): 44.0}
        files[name].write_text(json.dumps(stored(times, seed=len(files))))
    folder = ["--baselines", str(tmp_path / "baselines")]
    assert cli.main(["judge", str(files["first"]), *folder]) == 1
    assert cli.main(["record", str(files["first"]), *folder, "--reason", "first"]) == 0
    assert (tmp_path / "baselines" / "kernels" / "1x-nvidia-h200.json").is_file()
    assert cli.main(["judge", str(files["same"]), *folder]) == 0
    capsys.readouterr()
    assert cli.main(["judge", str(files["slow"]), *folder]) == 1
    assert f"REGRESSION   {DECODE.key}: 59.89 us, +19.7% against 50.02" in capsys.readouterr().out
    assert cli.main(["show", str(tmp_path / "none.json")]) == 2
