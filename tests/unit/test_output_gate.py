"""The output check's row: never a pass that was not made, that could not have failed, or that hides a difference."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfgate import gate, output_gate, output_report
from perfgate.closing import StartRecord
from perfgate.output_check import Step, blind
from perfgate.output_client import OutputCheckError
from perfgate.output_report import Own
from perfgate.recipe import Output, RecipeError, load
from perfgate.report import jsonfile, markdown, terminal
from perfgate.result import CheckResult, Outcome
from perfgate.server import http
from perfgate.yardstick import Yardstick

CPU_TINY = Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml"


def run(*prompts):
    """Each prompt a list of (token, logprob, second token, its logprob)."""
    return [[Step(((a, p), (b, q))) for a, p, b, q in prompt] for prompt in prompts]


FIRST = run([(5, -0.1, 9, -2.0)], [(7, -0.5, 8, -3.0)])
NEAR = run([(5, -0.13, 9, -2.0)], [(7, -0.5, 8, -3.0)])
FAR = run([(5, -0.4, 9, -2.0)], [(7, -0.5, 8, -3.0)])
ELSEWHERE = run([(9, -0.1, 5, -4.0)], [(8, -0.5, 7, -3.0)])
"""After prompts that began otherwise: attention reaches the answers."""


def own(first, again, alone, elsewhere=ELSEWHERE, restarted=None):
    return Own(first, again, alone, first if restarted is None else restarted, elsewhere)


def test_the_wider_of_the_old_servers_two_spreads_is_the_yardstick_and_determinism_is_told():
    found = output_report.row("old", "new", own(FIRST, FIRST, NEAR), run([(5, -0.15, 9, -2.0)], FIRST_SECOND))
    assert found.outcome is Outcome.PASS
    assert found.bound == pytest.approx(0.06)
    assert found.value == pytest.approx(0.05)
    assert "old is deterministic in the same batch" in found.why
    found = output_report.row("old", "new", own(FIRST, NEAR, FIRST), FIRST)
    assert found.outcome is Outcome.PASS
    assert "old is not deterministic: it differs from itself by 0.03 nats" in found.why


FIRST_SECOND = [(7, -0.5, 8, -3.0)]


def test_answers_that_differ_are_invalid_with_the_step_and_what_to_do():
    found = output_report.row("old", "new", own(FIRST, NEAR, NEAR), FAR)
    assert found.outcome is Outcome.INVALID
    assert "new does not answer as old does: 1 of 2 steps differ" in found.why
    assert found.evidence == ["prompt 0, step 0: log-probability of token 5 differs by 0.3, bound 0.06"]
    assert found.advice


def test_a_server_that_never_differs_from_itself_says_that_a_floor_is_missing():
    found = output_report.row("old", "new", own(FIRST, FIRST, FIRST), NEAR)
    assert found.outcome is Outcome.INVALID
    assert "give [output] floor in nats" in found.why
    assert output_report.row("old", "new", own(FIRST, FIRST, FIRST), NEAR, floor=0.05).outcome is Outcome.PASS


def test_a_check_that_could_not_have_failed_is_no_pass():
    # As with SGLang's dummy weights on an H200, 2026-11-30: 0 nats apart, and a decode that was wrong on purpose passed.
    deaf = own(FIRST, FIRST, FIRST, FIRST)
    found = output_report.row("old", "new", deaf, FIRST)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "another past moves the answers of old by 0 nats" in found.why
    assert "scaled_weights" in found.advice
    wide = output_report.row("old", "new", own(FIRST, FIRST, FIRST), NEAR, floor=1.0)
    assert (wide.outcome, wide.bound) == (Outcome.INCONCLUSIVE, 1.0)


def test_the_bound_has_to_be_a_quarter_of_what_another_past_does():
    assert blind(FIRST, FIRST, 0.0)
    moved = run([(5, -0.5, 9, -2.0)], FIRST_SECOND)
    assert not blind(FIRST, moved, 0.099)
    assert blind(FIRST, moved, 0.101)
    longer = [[*steps, *steps] for steps in FIRST]
    assert not blind(longer, moved, 0.099)
    assert blind(FIRST, run([(5, float("nan"), 9, -2.0)], FIRST_SECOND), 0.0)


def test_a_difference_outweighs_blindness():
    flat = run([(5, -10.39, 9, -10.39001)], [(7, -10.39, 8, -10.39001)])
    other = run([(5, -10.5, 9, -10.6)], [(7, -10.39, 8, -10.39001)])
    found = output_report.row("old", "new", own(flat, flat, flat, flat), other, floor=0.01)
    assert found.outcome is Outcome.INVALID


def test_answers_that_came_out_of_prefills_show_no_decode():
    first = run([(5, -0.1, 9, -2.0)] * 4, [(7, -0.5, 8, -3.0)] * 4)
    elsewhere = run([(9, -0.1, 5, -4.0)], [(8, -0.5, 7, -3.0)])

    def with_prefills(count):
        flat = [dataclasses.replace(step, decoded=False) for steps in first for step in steps][:count]
        rest = [step for steps in first for step in steps][count:]
        return [[*flat, *rest][:4], [*flat, *rest][4:]]

    asked = Own(first, first, first, first, elsewhere)
    assert output_report.row("old", "new", asked, with_prefills(4)).outcome is Outcome.PASS
    found = output_report.row("old", "new", asked, with_prefills(5))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.why.startswith("only 3 of 8 steps came out of a decode")


def test_the_bound_of_restarted_steps_counts_for_blindness_only_where_there_are_any():
    wide = begun_anew(run([(5, -0.9, 9, -2.0)], FIRST_SECOND))
    asked = own(FIRST, NEAR, NEAR, run([(5, -1.1, 9, -2.0)], FIRST_SECOND), restarted=wide)
    assert output_report.row("old", "new", asked, NEAR).outcome is Outcome.PASS
    found = output_report.row("old", "new", asked, begun_anew(NEAR))
    assert (found.outcome, found.bound) == (Outcome.INCONCLUSIVE, pytest.approx(1.6))


def begun_anew(one):
    return [[dataclasses.replace(step, restarted=True) for step in steps] for steps in one]


def test_not_a_number_becomes_an_absent_value_and_no_pass():
    broken = run([(5, float("nan"), 9, -2.0)], FIRST_SECOND)
    found = output_report.row("old", "new", own(FIRST, NEAR, NEAR), broken)
    assert found.outcome is Outcome.INVALID
    assert found.value is None
    json.loads(found.model_dump_json())


class Side:
    """A side of a run whose server is a script: what it answers when free and when forced."""

    def __init__(self, model: Path, free=FIRST, again=NEAR, alive=True, elsewhere=ELSEWHERE):
        self.server = SimpleNamespace(
            alive=lambda: alive, base_url=f"http://{id(self)}", model=model, log=None, served_name="side"
        )
        self.starts = [StartRecord(1, None)]
        self.free, self.again, self.elsewhere = free, again, elsewhere


@pytest.fixture
def sides(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"vocab_size": 32768}')
    made = {}

    def side(**kwargs):
        found = Side(tmp_path, **kwargs)
        made[found.server.base_url] = found
        return found

    def forced(url, prompts, reference, together=True, timeout=0.0, every=None):
        if isinstance(made[url].again, Exception):
            raise made[url].again
        asked = output_gate.prompts(Output(steps=2, prompt_lengths=[2, 3]), 32768)
        return made[url].again if prompts == asked else made[url].elsewhere

    monkeypatch.setattr(output_gate.output_client, "free_run", lambda url, *a, **k: made[url].free)
    monkeypatch.setattr(output_gate.output_client, "forced_run", forced)
    monkeypatch.setattr(output_gate.http, "flush_cache", lambda url, patience: None)
    return side


def recipe(**changes):
    return load(CPU_TINY).model_copy(update={"output": Output(steps=2, prompt_lengths=[2, 3]), **changes})


def gated(old, new, chosen=None):
    check = output_gate.OutputGate(chosen or recipe(), recipe(), lambda line: None, (old.server or new.server).model)
    check.compare(old, new)
    return check.checks()


def test_every_step_of_every_run_is_kept_with_the_report(sides, tmp_path):
    gated(sides(), sides(again=FAR))
    kept = json.loads(gzip.decompress((tmp_path / output_gate.KEPT).read_bytes()))
    assert set(kept) == {"first", "again", "alone", "restarted", "elsewhere", "new"}
    assert kept["new"][0][0]["followed"] == [5, -0.4]
    assert kept["first"][0][0]["choices"] == [[5, -0.1], [9, -2.0]]


def test_a_report_that_cannot_be_written_leaves_the_check_missing(sides, tmp_path):
    (tmp_path / output_gate.KEPT).mkdir()
    (found,) = gated(sides(), sides())
    assert found.outcome is Outcome.MISSING
    assert "cannot be written" in found.why


def test_both_servers_alike_are_one_row_and_their_load_is_known_as_ours(sides):
    old, new = sides(), sides()
    (found,) = gated(old, new)
    assert found.outcome is Outcome.PASS
    assert len(old.starts[0].windows) == len(new.starts[0].windows) == 1


def test_a_candidate_that_differs_fails(sides):
    (found,) = gated(sides(), sides(again=FAR))
    assert found.outcome is Outcome.INVALID


def test_an_old_side_whose_attention_does_not_reach_its_answers_shows_nothing(sides):
    (found,) = gated(sides(elsewhere=FIRST), sides())
    assert found.outcome is Outcome.INCONCLUSIVE


def test_other_pasts_end_alike_and_begin_otherwise():
    asked = output_gate.prompts(Output(prompt_lengths=[1, 2, 300]), 1000)
    other = output_gate.elsewhere(asked, 1000)
    assert [len(ids) for ids in other] == [1, 2, 300]
    assert [ids[-1] for ids in other] == [ids[-1] for ids in asked]
    assert sum(a == b for a, b in zip(asked[2][:-1], other[2][:-1], strict=True)) < 5


@pytest.mark.parametrize("dead", ["old", "new"])
def test_a_server_that_is_gone_leaves_the_check_missing(sides, dead):
    (found,) = gated(sides(alive=dead != "old"), sides(alive=dead != "new"))
    assert found.outcome is Outcome.MISSING
    assert f"the {dead} server is not there any more" in found.why
    assert "python -m perfgate output" in found.advice


def test_a_server_that_never_started_leaves_the_check_missing(sides):
    old = sides()
    old.server, old.starts = None, []
    (found,) = gated(old, sides())
    assert found.outcome is Outcome.MISSING


def test_a_server_that_refuses_leaves_the_check_missing_with_what_it_said(sides):
    (found,) = gated(sides(), sides(again=OutputCheckError("answered 500: out of memory")))
    assert found.outcome is Outcome.MISSING
    assert "answered 500: out of memory" in found.why


def test_a_run_that_ended_before_its_check_has_a_failing_row():
    (found,) = output_gate.OutputGate(recipe(), recipe(), print, Path()).checks()
    assert found.outcome is Outcome.MISSING
    assert "the run ended before it" in found.why


def test_a_recipe_without_the_table_has_no_row(sides):
    assert gated(sides(), sides(again=FAR), recipe(output=None)) == []


def test_a_refused_flush_is_asked_again_for_a_while(monkeypatch):
    answers = iter([400, 400, 200])
    monkeypatch.setattr(http, "request", lambda url, **how: (next(answers), b""))
    monkeypatch.setattr(http.time, "sleep", lambda s: None)
    http.flush_cache("http://x", patience=60)
    assert list(answers) == []


def test_a_refused_flush_is_an_error_at_once_where_nothing_of_ours_can_be_left(monkeypatch):
    answers = iter([400, 200])
    monkeypatch.setattr(http, "request", lambda url, **how: (next(answers), b"busy"))
    with pytest.raises(http.ServerHttpError, match="not ours"):
        http.flush_cache("http://x")
    assert list(answers) == [200]


def test_prompts_are_the_same_every_time_and_of_the_lengths_asked_for():
    table = Output(prompt_lengths=[1, 7])
    assert output_gate.prompts(table, 1000) == output_gate.prompts(table, 1000)
    assert [len(p) for p in output_gate.prompts(table, 1000)] == [1, 7]
    assert all(16 <= t < 1000 for p in output_gate.prompts(table, 1000) for t in p)


@pytest.mark.parametrize("lengths", ["[5]", "[5, 0]"])
def test_one_prompt_or_an_empty_one_is_refused(tmp_path, lengths):
    path = tmp_path / "cpu-tiny.toml"
    path.write_text(f"{CPU_TINY.read_text()}\n[output]\nprompt_lengths = {lengths}\n")
    with pytest.raises(RecipeError, match=r"output\.prompt_lengths"):
        load(path)


def failing() -> CheckResult:
    return CheckResult(name="answers", outcome=Outcome.INVALID, why="differ", evidence=["step 3"], advice="look there")


def test_a_failing_row_of_the_runs_own_fails_the_run_and_every_report_shows_what_to_do():
    cases = Path(__file__).parents[1] / "report_browser" / "cases"
    empty = jsonfile.read(cases / "empty.json")
    shown = empty.model_copy(update={"checks": [failing()]})
    for text in (terminal.render(shown), markdown.render(shown)):
        assert "step 3" in text
        assert "look there" in text


def test_a_failing_row_makes_a_passing_run_fail(monkeypatch):
    monkeypatch.setattr(gate.checks, "all_checks", lambda *a: [])
    monkeypatch.setattr(gate, "run_verdict", lambda points, *notes, paired: (Outcome.PASS, "all pass"))
    data = SimpleNamespace(points={}, server_seconds=0.0, client_seconds=0.0, notes=[])
    yardstick = Yardstick(recipe(), None, {}, False, 2, 2, 1)
    done = gate.result(data, yardstick, None, points=[], started_at=0.0, seconds=1.0, checked=[failing()])
    assert done.outcome is Outcome.INVALID
    assert "but check answers: differ" in done.why
    assert done.checks == [failing()]
