"""What only the whole run shows: a stranger by the clock, a patch that did not run everywhere."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from perfgate import campaign, closing, point_results, recipe
from perfgate.closing import StartRecord
from perfgate.proof import PatchProof
from perfgate.result import Outcome
from perfgate.sampler import Failure, Taken
from perfgate.workload import Plan, Sample

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")
ORDER = campaign.Order((1, 16), samples=2, max_samples=4, seed=1)
T0 = datetime.datetime(2026, 11, 29, 12, 0, 0).timestamp()
BATCH = (
    "Prefill batch. #new-seq: 1, #new-token: {n}, #cached-token: 0, token usage: 0.00, "
    "#running-req: 0, #queue-req: 0, input throughput (token/s): 10.00"
)


def taken(plan: Plan, start: float, seconds: float = 5.0, number: int = 1) -> Taken:
    sample = Sample(plan.concurrency, plan.num_prompts, seconds, plan.input_tokens, plan.output_tokens, 100.0)
    return Taken(
        plan, Sample(**{**vars(sample), "started_at": start, "ended_at": start + seconds, "server_start": number})
    )


def run(*samples: tuple[int, float]) -> campaign.CampaignData:
    data = campaign.new(RECIPE, ORDER)
    for concurrency, start in samples:
        data.points[concurrency].attempts.append(taken(data.points[concurrency].plan, T0 + start))
    return data


def log(folder: Path, *strays: float) -> Path:
    path = folder / "server.log"
    lines = [(0.0, "The server is fired up and ready to roll!"), *((at, BATCH.format(n=7)) for at in strays)]
    stamped = [f"[{datetime.datetime.fromtimestamp(T0 + at):%Y-%m-%d %H:%M:%S}] {text}" for at, text in lines]
    path.write_text("\n".join(stamped) + "\n")
    return path


def record(folder: Path, data: campaign.CampaignData, *strays: float) -> StartRecord:
    return StartRecord(1, log(folder, *strays), None, closing.measured(data, 1))


def test_a_stranger_by_the_clock_that_hits_one_points_sample_spoils_that_point_alone(tmp_path: Path) -> None:
    data = run((1, 20), (16, 58), (1, 80), (1, 140))
    closing.close(RECIPE, data, [record(tmp_path, data, 30.5, 60, 90, 120, 180)])
    assert data.points[1].condemned == ()
    (found,) = data.points[16].condemned
    assert "every 30 s" in found.message
    assert any("every 30 s" in note for note in data.notes)


def test_one_that_hits_no_sample_is_a_note_that_names_its_period(tmp_path: Path) -> None:
    data = run((1, 20), (16, 40))
    closing.close(RECIPE, data, [record(tmp_path, data, 65, 125, 185, 245)])
    assert not any(p.condemned for p in data.points.values())
    assert [note for note in data.notes if "every 60 s" in note]


def test_a_log_without_strangers_says_nothing(tmp_path: Path) -> None:
    data = run((1, 20))
    closing.close(RECIPE, data, [record(tmp_path, data)])
    assert data.notes == []


def proof(folder: Path, fatal: bool = True) -> PatchProof:
    return PatchProof(("topk",), fatal, folder / "c", (1,), {"topk": 2}, 1)


def test_a_patch_that_is_not_proved_at_the_end_makes_every_measured_point_invalid(tmp_path: Path) -> None:
    data = run((1, 20))
    data.points[16].failure = Failure("GPU_OOM", (), "", server_lost=True, message="died")
    closing.close(RECIPE, data, [StartRecord(1, log(tmp_path), proof(tmp_path))])
    rows = point_results.sample_rows(data.points[1].attempts)
    spoilt = point_results.unmeasured(data.points[1], rows)
    assert spoilt is not None
    assert spoilt.outcome is Outcome.INVALID
    assert "NOT_HOOKED" in spoilt.evidence[0]
    lost = point_results.unmeasured(data.points[16], [])
    assert lost is not None
    assert lost.outcome is Outcome.MISSING


def test_a_patch_that_is_not_required_is_a_note(tmp_path: Path) -> None:
    data = run((1, 20))
    closing.close(RECIPE, data, [StartRecord(1, log(tmp_path), proof(tmp_path, fatal=False))])
    assert data.points[1].condemned == ()
    assert any("NOT_HOOKED" in note for note in data.notes)


@pytest.mark.parametrize("text", ["", "not a log\n"])
def test_a_log_that_cannot_be_read_does_not_end_the_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(text)
    closing.close(RECIPE, run((1, 20)), [StartRecord(1, path), StartRecord(2, None)])


def speeds(data: campaign.CampaignData, concurrency: int, *chunks: float) -> None:
    """Samples whose client got so many tokens a chunk: the time between chunks over the time between tokens."""
    plan = data.points[concurrency].plan
    for start, tokens in enumerate(chunks):
        one = taken(plan, T0 + 20 * start)
        assert one.sample is not None
        figures = {"mean_tpot_ms": 10.0, "mean_itl_ms": 10.0 * tokens}
        data.points[concurrency].attempts.append(Taken(plan, Sample(**{**vars(one.sample), **figures})))


@pytest.mark.field_case("B17")
def test_samples_that_got_other_numbers_of_tokens_a_chunk_make_their_point_invalid(tmp_path: Path) -> None:
    data = run()
    speeds(data, 1, 1.0, 1.0)
    speeds(data, 16, 1.0, 4.0)
    closing.close(RECIPE, data, [record(tmp_path, data)])
    assert data.points[1].condemned == ()
    (found,) = data.points[16].condemned
    assert "tokens a chunk" in found.message


@pytest.mark.field_case("B17")
def test_the_sides_of_an_a_b_with_other_numbers_of_tokens_a_chunk_are_not_compared() -> None:
    data = run()
    speeds(data, 16, 1.0, 4.0)
    one, four = data.points[16].samples
    closing.close_pairs(data, {16: [(one, four)] * 3})
    assert data.points[16].condemned
    clean = run()
    closing.close_pairs(clean, {16: [(one, one)] * 3})
    assert clean.points[16].condemned == ()


@pytest.mark.field_case("B23")
def test_accept_lengths_that_differ_between_samples_are_a_note() -> None:
    data = run()
    plan = data.points[16].plan
    for length in (3.87, 5.12):
        one = taken(plan, T0)
        assert one.sample is not None
        data.points[16].attempts.append(Taken(plan, Sample(**{**vars(one.sample), "accept_length": length})))
    closing.close(RECIPE, data, [])
    assert any("accept length from 3.87 to 5.12" in note for note in data.notes)
    assert data.points[16].condemned == ()


def test_a_clock_that_was_set_back_is_noted_and_accuses_nobody(tmp_path: Path) -> None:
    data = run((1, 20))
    start = record(tmp_path, data, 65, 125, 185, 245)
    start.windows.append((T0 + 300, T0 - 3000))
    closing.close(RECIPE, data, [start])
    assert data.points[1].condemned == ()
    assert [note for note in data.notes if "clock was set back" in note]
