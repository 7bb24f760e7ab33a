"""The rule that compares a patched server's answers with the stock one's, and the client that collects them."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from perfgate.output_check import ALLOWED_FACTOR, Step, differences, judge
from perfgate.output_client import OutputCheckError, forced_run, free_run


def steps(*rows):
    return [[Step(tuple(row)) for row in rows]]


REFERENCE = steps([(5, -0.10), (9, -2.0), (3, -3.0)], [(7, -0.50), (8, -0.55), (1, -4.0)])
AGAIN = steps([(5, -0.13), (9, -2.0), (3, -3.0)], [(7, -0.46), (8, -0.55), (1, -4.0)])
"""The same server once more: at most 0.04 away, so that 0.08 is the bound."""


def test_a_candidate_within_twice_the_servers_own_spread_passes():
    verdict = judge(REFERENCE, [AGAIN], steps([(5, -0.17), (9, -2.0)], [(7, -0.50), (8, -0.55)]))
    assert verdict.ok
    assert verdict.noise == pytest.approx(0.04)
    assert verdict.bound == pytest.approx(ALLOWED_FACTOR * 0.04)
    assert verdict.largest == pytest.approx(0.07)
    assert verdict.steps == 2


def test_a_candidate_beyond_it_fails_and_the_step_is_named():
    verdict = judge(REFERENCE, [AGAIN], steps([(5, -0.19), (9, -2.0)], [(7, -0.50), (8, -0.55)]))
    assert not verdict.ok
    assert verdict.problems == ("prompt 0, step 0: log-probability of token 5 differs by 0.09, bound 0.08",)


def test_another_token_passes_where_the_references_two_best_were_that_close():
    verdict = judge(REFERENCE, [AGAIN], steps([(5, -0.10), (9, -2.0)], [(8, -0.52), (7, -0.53)]))
    assert verdict.ok
    assert verdict.changed_tokens == 1


@pytest.mark.field_case("R10")
def test_another_token_fails_where_the_reference_was_sure():
    swapped = steps([(9, -0.09), (5, -0.10)], [(7, -0.50), (8, -0.55)])
    verdict = judge(REFERENCE, [AGAIN], swapped)
    assert not verdict.ok
    assert "token 9 instead of 5, whose lead of 1.9" in verdict.problems[0]


def test_a_token_that_the_candidate_does_not_rank_differs_by_at_least_the_last_rank():
    (first, _) = differences(REFERENCE, steps([(1, -0.5), (2, -1.5)], [(7, -0.5), (8, -0.55)]))
    assert not first.exact
    assert first.amount == pytest.approx(1.4)


def test_a_token_whose_value_is_not_known_never_passes_however_little_it_must_differ():
    near = steps([(6, -0.10), (4, -0.10)], [(7, -0.50), (8, -0.55)])
    flat = steps([(5, -0.10), (9, -0.10)], [(7, -0.50), (8, -0.55)])
    verdict = judge(flat, [AGAIN], near)
    assert differences(flat, near)[0].amount == 0.0
    assert verdict.problems == (
        "prompt 0, step 0: the candidate's log-probability of token 5 is not known, bound 0.08",
    )


def test_an_unranked_token_has_the_value_that_was_asked_for():
    low = Step(((1, -0.5), (2, -1.5)), asked=((5, -8.0), (7, -9.0)))
    (first, _) = differences(REFERENCE, [[low, REFERENCE[0][1]]])
    assert first.exact
    assert first.amount == pytest.approx(7.9)


def begun_anew(run):
    return [[dataclasses.replace(step, restarted=True, decoded=i > 0) for i, step in enumerate(steps)] for steps in run]


def test_a_step_with_a_prefill_in_between_is_held_to_the_references_own_such_steps():
    other = steps([(5, -0.25), (9, -2.0)], [(7, -0.50), (8, -0.55)])
    yardsticks = [AGAIN, begun_anew(steps([(5, -0.20), (9, -2.0)], [(7, -0.50), (8, -0.55)]))]
    held = judge(REFERENCE, yardsticks, begun_anew(other))
    assert held.ok
    assert (held.bound, held.restarted_bound, held.limit) == pytest.approx((0.08, 0.20, 0.20))
    assert held.decoded == 1
    assert not judge(REFERENCE, yardsticks, other).ok, "decoded all the way it has no such excuse"
    assert not judge(REFERENCE, [AGAIN], begun_anew(other)).ok


def test_the_difference_that_is_shown_is_the_one_nearest_to_its_bound():
    candidate = steps([(5, -0.17), (9, -2.0)], [(7, -0.59), (8, -0.6)])
    candidate[0][1] = dataclasses.replace(candidate[0][1], restarted=True)
    yardsticks = [AGAIN, begun_anew(steps([(5, -0.10), (9, -2.0)], [(7, -0.60), (8, -0.7)]))]
    verdict = judge(REFERENCE, yardsticks, candidate)
    assert verdict.ok
    assert (verdict.largest, verdict.limit) == pytest.approx((0.07, 0.08)), "0.09 of 0.20 is farther from its bound"


def test_a_server_that_agrees_with_itself_exactly_is_said_to_and_lets_only_equal_output_pass():
    slightly = steps([(5, -0.1000001), (9, -2.0)], [(7, -0.50), (8, -0.55)])
    verdict = judge(REFERENCE, [REFERENCE], slightly)
    assert verdict.deterministic
    assert not verdict.ok
    assert judge(REFERENCE, [REFERENCE], REFERENCE).ok
    assert judge(REFERENCE, [REFERENCE], slightly, floor=0.01).ok


def test_not_a_number_never_passes():
    broken = steps([(5, math.nan), (9, -2.0)], [(7, -0.50), (8, -0.55)])
    assert not judge(REFERENCE, [AGAIN], broken).ok
    assert not judge(REFERENCE, [broken], REFERENCE).ok
    assert math.isnan(judge(REFERENCE, [AGAIN], broken).largest)


def test_comparing_nothing_is_no_pass():
    verdict = judge([[]], [[[]]], [[]])
    assert not verdict.ok
    assert "nothing was compared" in verdict.problems[0]


def test_runs_of_other_lengths_are_refused():
    with pytest.raises(ValueError, match="not of the same prompts"):
        judge(REFERENCE, [AGAIN], [REFERENCE[0][:1]])


class FakeServer:
    """/generate of a model whose next token is last + 1, except where ``turns`` says otherwise."""

    def __init__(self, turns=None, status=200, cut=0):
        self.turns, self.status, self.cut = turns or {}, status, cut
        self.bodies = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.bodies.append(body)
                data = json.dumps(outer.answer(body)).encode()
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, body):
        return [
            self.asked(self.one(ids, p["max_new_tokens"]), wanted)
            for ids, p, wanted in zip(
                body["input_ids"],
                body["sampling_params"],
                body.get("token_ids_logprob", [[]] * len(body["input_ids"])),
                strict=True,
            )
        ]

    def asked(self, answer, wanted):
        """With the tokens that were asked for, as SGLang answers them: the ranked ones' values, -9 for all others."""
        meta = answer["meta_info"]
        meta["output_token_ids_logprobs"] = [
            [[{row[1]: row[0] for row in rows}.get(token, -9.0), token, None] for token in wanted]
            for rows in meta["output_top_logprobs"]
        ]
        return answer

    def one(self, ids, count):
        ids, chosen, ranked = list(ids), [], []
        for _ in range(count - self.cut):
            best = ids[-1] + 1
            token, second = (self.turns[best], best) if best in self.turns else (best, 1000)
            chosen.append([-0.1, token, None])
            ranked.append([[-0.1, token, None], [-0.2, second, None]])
            ids.append(token)
        return {"meta_info": {"output_token_logprobs": chosen, "output_top_logprobs": ranked, "finish_reason": "x"}}


def tokens(run):
    return [[step.token for step in prompt] for prompt in run]


def test_a_free_run_asks_for_greedy_tokens_with_their_ranks():
    with FakeServer() as server:
        run = free_run(server.url, [[1, 2], [10]], 3)
    assert tokens(run) == [[3, 4, 5], [11, 12, 13]]
    (body,) = server.bodies
    assert body["sampling_params"][0] == {"temperature": 0, "max_new_tokens": 3, "ignore_eos": True}
    assert body["return_logprob"] is True
    assert body["top_logprobs_num"] >= 2


def test_a_free_run_can_go_one_prompt_at_a_time():
    with FakeServer() as server:
        run = free_run(server.url, [[1, 2], [10]], 2, together=False)
    assert tokens(run) == [[3, 4], [11, 12]]
    assert [len(body["input_ids"]) for body in server.bodies] == [1, 1]


@pytest.mark.parametrize("together", [True, False])
def test_a_forced_run_returns_to_the_references_tokens_after_another_choice(together):
    with FakeServer() as server:
        reference = free_run(server.url, [[1, 2], [10]], 4)
    with FakeServer(turns={4: 40}) as server:
        run = forced_run(server.url, [[1, 2], [10]], reference, together)
    assert tokens(run) == [[3, 40, 5, 6], [11, 12, 13, 14]]
    assert run[0][1].logprob(4) == -0.2
    assert server.bodies[-1 if together else 1]["input_ids"] == [[1, 2, 3, 4]]
    assert [step.decoded for step in run[0]] == [False, True, False, True]
    assert [step.restarted for step in run[0]] == [False, False, True, True]
    assert [step.decoded for step in run[1]] == [False, True, True, True]


def test_a_forced_run_asks_for_every_token_that_it_follows():
    with FakeServer() as server:
        reference = free_run(server.url, [[1, 2], [10]], 4)
    with FakeServer(turns={4: 40, 40: 40}) as server:
        run = forced_run(server.url, [[1, 2], [10]], reference)
    assert server.bodies[0]["token_ids_logprob"] == [[3, 4, 5, 6], [11, 12, 13, 14]]
    assert run[0][3].logprob(3) == -9.0, "unranked, and known all the same"


def test_a_forced_run_can_begin_anew_after_so_many_steps():
    with FakeServer() as server:
        reference = free_run(server.url, [[1, 2], [10]], 5)
        run = forced_run(server.url, [[1, 2], [10]], reference, every=2)
    assert tokens(run) == tokens(reference)
    assert [[len(ids) for ids in body["input_ids"]] for body in server.bodies[1:]] == [[2, 1], [4, 3], [6, 5]]
    assert [step.restarted for step in run[1]] == [False, False, True, True, True]
    assert [step.decoded for step in run[1]] == [False, True, False, True, False]


def test_a_server_that_leaves_out_what_was_asked_for_is_named():
    class Deaf(FakeServer):
        def asked(self, answer, wanted):
            return super().asked(answer, wanted[1:])

    with FakeServer() as server:
        reference = free_run(server.url, [[1, 2]], 3)
    with Deaf() as server, pytest.raises(OutputCheckError, match="lacks the log-probabilities of 1 tokens"):
        forced_run(server.url, [[1, 2]], reference)


@pytest.mark.parametrize(("kwargs", "message"), [({"status": 500}, "answered 500"), ({"cut": 1}, "asked for 3 tokens")])
def test_a_server_that_refuses_or_stops_early_is_named(kwargs, message):
    with FakeServer(**kwargs) as server, pytest.raises(OutputCheckError, match=message):
        free_run(server.url, [[1]], 3)


def test_a_server_that_is_gone_is_named():
    with pytest.raises(OutputCheckError, match="cannot be reached"):
        free_run("http://127.0.0.1:9", [[1]], 1, timeout=5)


def test_the_chosen_token_goes_first_among_equals():
    class Tied(FakeServer):
        def one(self, ids, count):
            rows = [[-0.7, 8, None], [-0.7, 4, None]]
            return {"meta_info": {"output_token_logprobs": [[-0.7, 4, None]], "output_top_logprobs": [rows]}}

    with Tied() as server:
        run = free_run(server.url, [[1]], 1)
    assert tokens(run) == [[4]]
