"""A time counts at the clock that it is compared at: unread, low and throttled ones are refused, recorded or shown as such."""

from __future__ import annotations

import pytest
from kernelbench_kit import DECODE, FINGERPRINT, HC, ours, run

from perfgate.baseline import BaselineError
from perfgate.kernelbench import bars, baseline, clocks, judge, recording
from perfgate.kernelbench.clock_watch import State, parse_state, state_of, worst
from perfgate.kernelbench.table import render
from perfgate.result import Outcome

UNKNOWN = {**FINGERPRINT, "hardware": {k: v for k, v in FINGERPRINT["hardware"].items() if k != "gpu_max_sm_mhz"}}


def only(path, *runs):
    found = judge.judge(runs, baseline.load(path))
    assert len({one.outcome for one in found}) == 1
    return found[0]


@pytest.mark.parametrize(
    ("mhz", "outcome"),
    [(None, Outcome.INVALID), (1200, Outcome.INVALID), (1915, Outcome.INVALID), (1935, Outcome.PASS)],
)
def test_an_unread_or_low_clock_is_invalid(kernels_recorded, mhz, outcome):
    assert only(kernels_recorded, ours(50.0, mhz=mhz)).outcome is outcome


def test_one_low_run_of_several_spoils_the_shape(kernels_recorded):
    found = only(kernels_recorded, ours(50.0), ours(50.0, seed=1, mhz=1200))
    assert found.outcome is Outcome.INVALID
    assert found.why == "timed at 1200 MHz, its baseline at 1980 MHz"


def test_a_clock_above_the_baselines_is_as_wrong_as_one_below(tmp_path):
    path = tmp_path / "x.json"
    recording.record(path, [ours(50.0, mhz=1500)], reason="first", recorded_at="2026-11-30", clock_mhz=1500)
    assert only(path, ours(50.0, seed=1)).outcome is Outcome.INVALID
    assert only(path, ours(50.0, seed=1, mhz=1500)).outcome is Outcome.PASS


def test_another_cards_clock_is_not_what_is_compared_with(kernels_recorded):
    other = {**FINGERPRINT, "hardware": FINGERPRINT["hardware"] | {"gpu_name": "other", "gpu_max_sm_mhz": 2617}}
    assert only(kernels_recorded, ours(50.0, mhz=2617, top_mhz=2617, fingerprint=other)).outcome is Outcome.NO_BASELINE


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mhz": 1200}, "timed at 1200 MHz, and the card's highest is 1980 MHz"),
        ({"mhz": None}, "was not read"),
        ({"throttled": ("thermal (hardware)",)}, "throttled"),
        ({"top_mhz": None, "fingerprint": UNKNOWN}, "highest clock is not known"),
    ],
)
def test_a_loose_clock_becomes_no_baseline(tmp_path, options, words):
    path = tmp_path / "x.json"
    with pytest.raises(BaselineError, match=words.replace("(", r"\(")):
        recording.record(path, [ours(50.0, **options)], reason="first", recorded_at="2026-11-30")
    assert not path.exists()


def test_a_clock_that_is_stated_is_recorded_and_held_to(tmp_path):
    path = tmp_path / "x.json"
    recording.record(
        path, [ours(50.0, mhz=m) for m in (1495, 1500)], reason="locked", recorded_at="2026-11-30", clock_mhz=1500
    )
    assert {point.sm_mhz for point in baseline.load(path).points.values()} == {1495}
    with pytest.raises(BaselineError, match="the clock stated is 1500 MHz"):
        recording.record(path, [ours(50.0)], reason="locked", recorded_at="2026-11-30", clock_mhz=1500)


def test_bars_of_a_time_that_does_not_count_are_not_reached():
    def state(**own):
        found = run({(HC, "ours"): 9.0}, **own)
        peer = run({(HC, "DeepGEMM split"): 9.0})
        both = type(found)((*found.rows, *peer.rows), found.fingerprint, found.rates)
        reached = next(
            r for r in bars.reached(both.medians(), clocks.spoilt(both)) if r.bar.name == "hc-T1 over DeepGEMM split"
        )
        assert reached.value is not None
        return reached.state, render(both)

    assert state()[0] == "reached"
    for own in ({"throttled": ("power cap",)}, {"mhz": None}, {"mhz": 1200}):
        found, text = state(**own)
        assert found == "invalid"
        assert "bars: 0 of 19 reached" in text
        assert "DOES NOT COUNT: hc-T1 ours: " in text


def test_a_throttled_peer_spoils_a_bar_too_and_of_several_pairs_another_stands():
    cells = {(bars.decode(b), name): us for b, name, us in ((1, "ours", 16.0), (1, "FlashMLA", 17.0))}
    cells |= {(bars.decode(64), "ours"): 43.0, (bars.decode(64), "FlashMLA"): 44.0}
    spoilt = {(bars.decode(1), "FlashMLA"): "throttled"}
    found = {r.bar.name: r for r in bars.reached(cells, spoilt)}
    assert found[f"{bars.decode(1).key} over FlashMLA"].state == "invalid"
    ahead = found["decode-H64-128+512 ahead of FlashMLA somewhere"]
    assert (ahead.state, ahead.value) == ("reached", pytest.approx(43 / 44))
    all_spoilt = spoilt | {(bars.decode(64), "ours"): "not read"}
    found = {r.bar.name: r for r in bars.reached(cells, all_spoilt)}
    assert found["decode-H64-128+512 ahead of FlashMLA somewhere"].state == "invalid"


def test_a_power_cap_at_the_highest_clock_is_noted_and_below_it_counts():
    assert state_of(1980, 0x04, 690.0, 60, 1980, "NVML").throttled == ()
    assert state_of(1980, 0x04, 690.0, 60, 1980, "NVML").noted == ("power cap, clock at its highest",)
    assert state_of(1965, 0x04, 690.0, 60, 1980, "NVML").throttled == ("power cap",)
    assert state_of(1980, 0x44, 690.0, 60, 1980, "NVML").throttled == ("thermal (hardware)",)
    shown = run({(DECODE, "ours"): 50.0}, noted=("power cap, clock at its highest",))
    assert clocks.spoilt(shown) == {}
    assert "throttled: no; noted: power cap, clock at its highest" in render(shown)


def test_of_several_moments_the_lowest_clock_and_every_reason_stand():
    moments = [
        State(1980, top_mhz=1980),
        State(1700, ("power cap",), top_mhz=1980),
        State(None),
        State(1965, ("thermal",)),
    ]
    found = worst(moments)
    assert (found.sm_mhz, found.throttled, found.top_mhz) == (1700, ("power cap", "thermal"), 1980)
    assert worst([State(None), State(None, read_by="NVML, idle")]).sm_mhz is None
    assert worst([]).sm_mhz is None


@pytest.mark.parametrize(
    ("row", "state"),
    [
        (
            ["1980", "0x0000000000000004", "690.12", "61", "1980"],
            (1980, (), ("power cap, clock at its highest",), 690.12, 61),
        ),
        ([" 1200 ", "0x0000000000000000", "[N/A]", "35", "[N/A]"], (1200, (), (), None, 35)),
        (
            ["1500", "0x0000000000000028", "300", "35", "1980"],
            (1500, ("hardware slowdown", "thermal (software)"), (), 300.0, 35),
        ),
        (["[N/A]", "0x0", "300", "35", "1980"], (None, (), (), None, None)),
        (["1980", "[N/A]", "300", "35", "1980"], (None, (), (), None, None)),
    ],
)
def test_what_nvidia_smi_answers(row, state):
    found = parse_state(row)
    assert (found.sm_mhz, found.throttled, found.noted, found.power_w, found.temperature_c) == state
