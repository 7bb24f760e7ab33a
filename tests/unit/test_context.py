"""Decode time per 1,000 tokens of context: the fit, its verdicts, the sweep, and two context lengths held together."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from perfgate import context_compare, context_report
from perfgate.context_sweep import LITTLE_SHARE, ContextSweep
from perfgate.recipe import Context, RecipeError, load
from perfgate.report import jsonfile
from perfgate.result import Outcome, PointResult, SampleRow
from perfgate.sampler import Failure, Taken
from perfgate.scaling import ScalingError
from perfgate.scaling.context import fit
from perfgate.validity import Problem, ProblemKind
from perfgate.workload import Sample

CPU_TINY = Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml"
LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
TABLE = Context(lengths=LENGTHS, output_len=64, repeats=3, us_per_1000_tokens=30)


def steps(below=20.0, above=5.0, noise=0.001, seed=0, base=1.7, knee=2048, repeats=3):
    """Step times in ms at LENGTHS + 32 tokens, of slopes in us per 1,000 tokens."""
    dice = np.random.default_rng(seed)
    found = {}
    for length in LENGTHS:
        context = length + 32
        step = base + (below * min(context, knee) + above * max(context - knee, 0)) / 1e6
        found[length] = [float(step * v) for v in dice.normal(1, noise, repeats)]
    return found


def shifted(readings):
    return {length + 32.0: values for length, values in readings.items()}


def test_both_slopes_of_an_exact_law_are_found():
    law = fit(shifted(steps(noise=0.0)), 2048)
    assert law.below == pytest.approx(20, rel=1e-6)
    assert law.above == pytest.approx(5, rel=1e-6)
    assert law.step_ms == pytest.approx(1.7, rel=1e-9)
    assert law.misfit < 1e-9


def test_the_intervals_hold_the_truth_about_as_often_as_they_say():
    held = {"below": 0, "above": 0}
    for seed in range(200):
        law = fit(shifted(steps(seed=seed, noise=0.004)), 2048)
        held["below"] += law.below_interval[0] <= 20 <= law.below_interval[1]
        held["above"] += law.above_interval[0] <= 5 <= law.above_interval[1]
    # The wider of two 95 % intervals holds it at least as often: 190 of 200, less three sigma of a count.
    assert min(held.values()) >= 181


def test_a_law_that_bends_elsewhere_widens_the_interval():
    readings = steps(noise=0.0005)
    readings[8192] = [value + 0.3 for value in readings[8192]]
    straight = fit(shifted(steps(noise=0.0005)), 2048)
    bent = fit(shifted(readings), 2048)
    width = [law.above_interval[1] - law.above_interval[0] for law in (straight, bent)]
    assert width[1] > 5 * width[0]


def test_noisy_repeats_widen_the_interval_though_their_means_lie_on_the_lines():
    exact = {length: values[0] for length, values in shifted(steps(noise=0.0)).items()}
    law = fit({length: [0.98 * value, 1.02 * value] for length, value in exact.items()}, 2048)
    assert law.misfit < 1e-9
    dice = np.random.default_rng(5)
    sd = 0.02  # of the mean of two repeats that lie 4 % apart: 0.04 / sqrt(2) / sqrt(2)
    slopes = [
        fit(
            {
                length: [value * (1 + sd * e)] * 2
                for (length, value), e in zip(exact.items(), dice.normal(size=6), strict=True)
            },
            2048,
        )
        for _ in range(300)
    ]
    spread = float(np.std([found.above for found in slopes]))
    assert (law.above_interval[1] - law.above_interval[0]) / 2 > 1.9 * spread


def test_without_a_length_beyond_the_knee_there_is_one_slope():
    law = fit({100.0: [1.0, 1.0], 200.0: [1.1, 1.1], 300.0: [1.2, 1.2]}, 2048)
    assert law.above is None
    assert law.below == pytest.approx(1000, rel=1e-6)


@pytest.mark.parametrize(
    "readings",
    [
        {100.0: [1.0, 1.0], 200.0: [1.1, 1.1]},
        {100.0: [1.0, 1.0], 3000.0: [1.1, 1.1], 4000.0: [1.2, 1.2]},
        {100.0: [1.0], 200.0: [1.1, 1.1], 300.0: [1.1, 1.1]},
        {100.0: [1.0, float("nan")], 200.0: [1.1, 1.1], 300.0: [1.1, 1.1]},
    ],
)
def test_too_few_or_impossible_readings_give_no_law(readings):
    with pytest.raises(ScalingError):
        fit(readings, 2048)


def outcomes(found):
    return [row.outcome for row in found]


def test_slopes_within_the_bound_pass_and_show_their_intervals():
    found = context_report.rows(TABLE, steps(noise=0.0002))
    assert outcomes(found) == [Outcome.PASS, Outcome.PASS]
    assert [row.name for row in found] == ["context up to 2,048 tokens", "context beyond 2,048 tokens"]
    assert found[0].value == pytest.approx(20, rel=0.2)
    assert found[0].unit == "us per 1,000 tokens"
    assert "[" in found[0].why


def test_a_slope_beyond_the_bound_is_a_regression_on_its_own_side():
    found = context_report.rows(TABLE, steps(above=60.0, noise=0.0002))
    assert outcomes(found) == [Outcome.PASS, Outcome.REGRESSION]
    assert found[1].advice


def test_noise_that_spans_the_bound_is_no_pass():
    found = context_report.rows(TABLE, steps(below=29, above=29, noise=0.05, seed=3))
    assert Outcome.PASS not in outcomes(found)
    assert Outcome.INCONCLUSIVE in outcomes(found)


def test_without_a_bound_the_slope_is_told_and_said_to_have_none():
    found = context_report.rows(TABLE.model_copy(update={"us_per_1000_tokens": None}), steps(noise=0.0002))
    assert outcomes(found) == [Outcome.PASS, Outcome.PASS]
    assert "no bound" in found[0].why


def test_readings_that_make_no_law_leave_the_rows_missing():
    found = context_report.rows(TABLE, {512: [1.0, 1.0]})
    assert outcomes(found) == [Outcome.MISSING, Outcome.MISSING]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lengths = [64, 128]", "lengths"),
        ("lengths = [64, 64, 128]", "different"),
        ("lengths = [2040, 4096, 64]", "below the knee"),
        ("lengths = [64, 128, 256]\nrepeats = 1", "repeats"),
    ],
)
def test_tables_that_cannot_be_fitted_are_refused(tmp_path, text, said):
    path = tmp_path / "cpu-tiny.toml"
    path.write_text(f"{CPU_TINY.read_text()}\n[context]\n{text}\n")
    with pytest.raises(RecipeError, match=said):
        load(path)


class Sampler:
    """Answers by a script: (length, how many-th take) -> Taken."""

    def __init__(self, recipe, answer, alive=True):
        self.recipe, self.answer, self.taken, self.plans = recipe, answer, [], []
        self.server = SimpleNamespace(alive=lambda: alive)

    def take(self, plan, seed, show):
        self.taken.append((plan.input_len, self.recipe.workload.little_share))
        self.plans.append(plan)
        return self.answer(plan, sum(n == plan.input_len for n, _ in self.taken))


def good(plan, count=1):
    step = 1.7 + 20 * (plan.input_len + 32) / 1e6
    sample = Sample(1, plan.num_prompts, 1.0, plan.input_tokens, plan.output_tokens, 100.0, median_tpot_ms=step)
    return Taken(plan, sample, seconds=2.0)


def dirty(plan):
    problem = Problem(kind=ProblemKind.STANDSTILL, message="stood still", evidence=("line",))
    return dataclasses.replace(good(plan), problems=(problem,))


def recipe(**changes):
    table = Context(lengths=[64, 128, 256, 512], knee=200, repeats=2, us_per_1000_tokens=100)
    return load(CPU_TINY).model_copy(update={"context": table, **changes})


def swept(answer=good, alive=True):
    chosen = recipe()
    sampler = Sampler(chosen, answer, alive)
    sweep = ContextSweep(chosen, 7, lambda line: None)
    sweep.measure(sampler)
    return sweep, sampler


def test_every_length_is_warmed_once_and_then_taken_in_every_round():
    sweep, sampler = swept()
    lengths = [n for n, _ in sampler.taken]
    assert [sorted(lengths[i : i + 4]) for i in (0, 4, 8)] == [[64, 128, 256, 512]] * 3
    assert outcomes(sweep.checks()) == [Outcome.PASS, Outcome.PASS]
    assert {n: len(v) for n, v in sweep.as_extra()["context"]["step_ms"].items()} == dict.fromkeys(
        ("64", "128", "256", "512"), 2
    )
    assert sweep.seconds == 24.0


def test_samples_are_as_long_as_the_points_samples_are():
    _, sampler = swept()
    # A warm-up of 5 prompts takes 1 s; the recipe asks for 4 s, and a quarter is to spare.
    assert [plan.num_prompts for plan in sampler.plans] == [5] * 4 + [25] * 8


def test_a_long_prefill_is_not_taken_for_a_standstill_and_the_points_keep_their_bound():
    _, sampler = swept()
    assert {share for _, share in sampler.taken} == {LITTLE_SHARE}
    assert sampler.recipe.workload.little_share == recipe().workload.little_share == 0.4


def test_a_dirty_sample_is_taken_again_and_does_not_count():
    sweep, _ = swept(lambda plan, n: dirty(plan) if (plan.input_len, n) == (128, 2) else good(plan))
    assert outcomes(sweep.checks()) == [Outcome.PASS, Outcome.PASS]
    assert len(sweep.as_extra()["context"]["step_ms"]["128"]) == 2


def test_a_length_that_stays_dirty_leaves_the_rows_missing_with_the_reason():
    sweep, _ = swept(lambda plan, n: dirty(plan) if plan.input_len == 128 and n > 1 else good(plan))
    found = sweep.checks()
    assert outcomes(found) == [Outcome.MISSING, Outcome.MISSING]
    assert "at 128 tokens no sample counted" in found[0].why
    assert found[0].evidence == ["line"]


def test_a_server_that_dies_in_the_sweep_leaves_the_rows_missing():
    death = Failure("GPU_OOM", ("line",), "do this", server_lost=True, message="the server died")
    sweep, sampler = swept(
        lambda plan, n: Taken(plan, None, failure=death) if (plan.input_len, n) == (512, 2) else good(plan)
    )
    found = sweep.checks()
    assert outcomes(found) == [Outcome.MISSING, Outcome.MISSING]
    assert "GPU_OOM: the server died" in found[0].why
    assert found[0].advice == "do this"
    assert [n for n, _ in sampler.taken].count(512) == 2


def test_a_sweep_is_made_once_however_many_starts_there_are():
    for alive in (True, False):
        sweep, sampler = swept(alive=alive)
        taken, found = list(sampler.taken), sweep.checks()
        sweep.measure(Sampler(recipe(), good, True))
        sweep.measure(sampler)
        assert sampler.taken == taken
        assert sweep.checks() == found


def test_a_sweep_without_a_live_server_or_never_reached_is_missing():
    assert outcomes(swept(alive=False)[0].checks()) == [Outcome.MISSING] * 2
    gone = ContextSweep(recipe(), 7, print)
    assert "the run ended before it" in gone.checks()[0].why
    gone.measure(None)
    assert "not there any more" in gone.checks()[0].why


def test_a_recipe_without_the_table_has_no_row():
    sweep = ContextSweep(recipe(context=None), 7, print)
    sweep.measure(None)
    assert sweep.checks() == []
    assert sweep.as_extra() == {}


EMPTY = jsonfile.read(Path(__file__).parents[1] / "report_browser" / "cases" / "empty.json")


def result(values, context=65536, outcome=Outcome.PASS, concurrency=16, **server):
    rows = [SampleRow(index=i, asked=80, step_ms=v, throughput=1.0, counted=True) for i, v in enumerate(values)]
    point = PointResult(concurrency=concurrency, outcome=outcome, why="", samples=rows)
    fingerprint = {"server": {"context_length": context, "dtype": "auto", **server}, "hardware": {"cpu": "x"}}
    return EMPTY.model_copy(update={"points": [point], "fingerprint": fingerprint, "commit": "abc"})


NEAR = [2.000, 2.004, 1.997, 2.001, 2.002]


def compared(one, other):
    return {row.name: row for row in context_compare.compare(one, other)}


@pytest.mark.parametrize(
    ("factor", "outcome"),
    [(1.0, Outcome.PASS), (1.01, Outcome.PASS), (1.05, Outcome.REGRESSION), (0.95, Outcome.REGRESSION)],
)
def test_step_times_of_two_context_lengths_are_held_together(factor, outcome):
    found = compared(result(NEAR), result([v * factor for v in NEAR], context=1048576))
    assert found["step time C=16"].outcome is outcome
    assert found["step time C=16"].value == pytest.approx(factor - 1, abs=1e-4)
    assert found["context length alone differs"].outcome is Outcome.PASS


def test_an_interval_that_spans_the_bound_is_no_pass():
    found = compared(result(NEAR), result([v * 1.0199 for v in NEAR], context=1048576))
    assert 0 < found["step time C=16"].value < context_compare.BOUND
    assert found["step time C=16"].outcome is Outcome.INCONCLUSIVE
    found = compared(result(NEAR), result([v * 1.02 for v in NEAR], context=1048576))
    assert found["step time C=16"].outcome is Outcome.INCONCLUSIVE
    noisy = [1.8, 2.2, 2.0, 1.7, 2.3]
    assert compared(result(noisy), result(noisy, context=1))["step time C=16"].outcome is Outcome.INCONCLUSIVE


def test_results_that_differ_in_more_or_in_nothing_are_refused():
    name = "context length alone differs"
    found = compared(result(NEAR), result(NEAR, context=1048576, dtype="bfloat16"))
    assert found[name].outcome is Outcome.INVALID
    assert "server.dtype" in found[name].why
    assert compared(result(NEAR), result(NEAR))[name].outcome is Outcome.INVALID
    bare = result(NEAR).model_copy(update={"fingerprint": {}})
    assert compared(bare, bare)[name].outcome is Outcome.MISSING


@pytest.mark.parametrize("outcome", [Outcome.MISSING, Outcome.INVALID])
def test_a_point_that_was_not_measured_is_missing(outcome):
    found = compared(result(NEAR), result(NEAR, context=1048576, outcome=outcome))
    assert found["step time C=16"].outcome is Outcome.MISSING
    found = compared(result(NEAR), result(NEAR, context=1048576, concurrency=1))
    assert {found["step time C=16"].outcome, found["step time C=1"].outcome} == {Outcome.MISSING}


def test_the_command_exits_1_unless_all_rows_pass(tmp_path, capsys):
    one, same, slow = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"
    jsonfile.write(result(NEAR), one)
    jsonfile.write(result(NEAR, context=1048576), same)
    jsonfile.write(result([v * 1.1 for v in NEAR], context=1048576), slow)
    assert context_compare.main([str(one), str(same)]) == 0
    assert context_compare.main([str(one), str(slow)]) == 1
    assert "REGRESSION step time C=16: +10.00%, bound 2%" in capsys.readouterr().out
    assert context_compare.main([str(one), str(tmp_path / "none.json")]) == 2
    (tmp_path / "bad.json").write_text(json.dumps({"schema_version": 9}))
    assert context_compare.main([str(one), str(tmp_path / "bad.json")]) == 2
