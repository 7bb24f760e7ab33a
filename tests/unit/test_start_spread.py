"""The note on how far a run's server starts lie apart."""

from perfgate import start_spread
from perfgate.result import Outcome, PointResult, SampleRow


def point(*samples):
    rows = [
        SampleRow(index=i, server_start=start, step_ms=step, asked=1, counted=counted)
        for i, (start, step, counted) in enumerate(samples)
    ]
    return PointResult(concurrency=16, outcome=Outcome.PASS, why="", samples=rows)


def test_medians_by_start_and_both_spreads_are_said():
    found = start_spread.notes([point((1, 2.0, True), (1, 2.02, True), (2, 2.1, True), (2, 2.1, True))])
    assert found == [
        "C=16: step time by server start 2.01, 2.1 ms: 4.4% apart; the samples of one start 1.0% at most",
    ]


def test_one_start_says_nothing_and_what_was_thrown_away_does_not_count():
    assert start_spread.notes([point((1, 2.0, True), (1, 2.1, True), (2, 9.0, False))]) == []
    assert start_spread.notes([point((1, None, True), (2, 2.0, True))]) == []
