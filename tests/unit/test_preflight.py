"""Preflight: each limit from both sides, and the setting that it names."""

from __future__ import annotations

import dataclasses

import pytest

from perfgate.preflight import Limit, ServerFacts, in_words, predict
from perfgate.workload import Plan

ROOMY = ServerFacts(
    max_total_tokens=64 * 1536,
    max_running_requests=64,
    context_len=1536,
    graph_batch_sizes=(1, 2, 4, 8, 16, 32, 64),
    free_bytes=8 << 30,
)


def plan(concurrency: int = 64, input_len: int = 1024, output_len: int = 512) -> Plan:
    return Plan(concurrency, 5 * concurrency, input_len, output_len)


def only(facts: ServerFacts, asked: Plan):
    (prediction,) = predict(facts, [asked])
    return prediction


def test_point_that_just_fits_every_limit_fits():
    prediction = only(ROOMY, plan())
    assert prediction.fits
    assert prediction.failing == prediction.unknown == ()
    assert in_words([prediction]) == []


@pytest.mark.parametrize(
    ("change", "limit", "setting"),
    [
        ({"graph_batch_sizes": (1, 16, 32)}, Limit.GRAPHS, "--cuda-graph-max-bs"),
        (
            {"graph_batch_sizes": None, "no_graphs_because": "--disable-cuda-graph"},
            Limit.GRAPHS,
            "--disable-cuda-graph",
        ),
        ({"max_total_tokens": 64 * 1536 - 1}, Limit.KV_POOL, "--mem-fraction-static"),
        ({"max_running_requests": 63}, Limit.RUNNING, "--max-running-requests at least 64"),
        ({"context_len": 1535}, Limit.CONTEXT, "--context-length at least 1536"),
        ({"free_bytes": 0}, Limit.MEMORY, "lower --mem-fraction-static"),
    ],
)
def test_one_too_few_of_anything_is_predicted_with_the_setting_to_change(change, limit, setting):
    prediction = only(dataclasses.replace(ROOMY, **change), plan())
    assert not prediction.fits
    (finding,) = prediction.failing
    assert finding.limit is limit
    assert setting in finding.setting
    assert setting in in_words([prediction])[0]


def test_missing_c64_of_the_campaign_is_predicted_and_the_smaller_points_are_not():
    facts = dataclasses.replace(ROOMY, graph_batch_sizes=(1, 2, 4, 8, 16, 24, 32), free_bytes=1 << 20)
    one, sixteen, sixty_four = predict(facts, [plan(1), plan(16), plan(64)])
    assert one.fits
    assert sixteen.fits
    assert [finding.limit for finding in sixty_four.failing] == [Limit.GRAPHS, Limit.MEMORY]
    assert "--mem-fraction-static" in sixty_four.failing[0].setting


def test_pages_are_counted_whole():
    facts = dataclasses.replace(ROOMY, page_size=256, max_total_tokens=2 * 1536 + 255)
    assert only(facts, plan(2, 1024, 512)).fits
    assert not only(facts, plan(2, 1024, 513)).fits


@pytest.mark.parametrize(
    "name", ["max_total_tokens", "max_running_requests", "context_len", "graph_batch_sizes", "free_bytes"]
)
def test_what_the_server_did_not_say_is_unknown_and_named(name):
    prediction = only(dataclasses.replace(ROOMY, **{name: None}), plan())
    assert prediction.fits
    assert len(prediction.unknown) == 1
    assert "did not say" in in_words([prediction])[0]


def test_engine_without_graphs_is_not_blamed_for_them():
    facts = dataclasses.replace(ROOMY, graph_batch_sizes=None, graphs_expected=False)
    assert only(facts, plan()).failing == ()


def test_prediction_stands_beside_what_happened():
    bad = only(dataclasses.replace(ROOMY, max_running_requests=16), plan())
    assert "as predicted" in bad.beside("MISSING", ran=False)
    assert "max_running_requests=16" in bad.beside("MISSING", ran=False)
    assert "against the prediction" in bad.beside("PASS", ran=True)
    assert "as predicted" in only(ROOMY, plan()).beside("PASS", ran=True)
