"""What a server chose by itself is recorded, and another choice is not compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from judging import baseline, samples

from perfgate import backends, fingerprint
from perfgate.baseline import record
from perfgate.baseline.file import load
from perfgate.result import Outcome
from perfgate.verdict import judge, judge_ab

DATA = Path(__file__).parents[1] / "data"
CHOICE = "[2026-11-29 16:33:31] Attention backend not explicitly specified. Use {} backend by default.\n"
INFO = {"attention_backend": None, "page_size": 256}


def collected(backend: str) -> dict[str, object]:
    return fingerprint.collect(INFO, start_log=CHOICE.format(backend))


@pytest.mark.field_case("R06", "R09")
def test_another_backend_under_an_equal_server_info_is_not_compared_and_both_are_named() -> None:
    old, new = collected("fa2"), collected("fa3")
    assert old["server"] == new["server"]
    verdict = judge(samples([1000.0] * 5), baseline([1000.0] * 5, fingerprint=old), fingerprint=new)
    assert verdict.outcome is Outcome.NO_BASELINE
    assert "fa2" in verdict.why
    assert "fa3" in verdict.why
    same = judge(samples([1000.0] * 5), baseline([1000.0] * 5, fingerprint=old), fingerprint=collected("fa2"))
    assert same.outcome is not Outcome.NO_BASELINE


@pytest.mark.field_case("R06", "R09")
def test_the_chosen_backend_and_the_library_versions_are_kept_with_the_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    kept = collected("fa3")
    record(
        path,
        recipe="r",
        hardware="h",
        points={16: samples([1000.0, 1001.0])},
        fingerprint=kept,
        recorded_at="2026-11-29",
    )
    stored = load(path).stored_point(16)
    assert stored is not None
    assert stored.provenance.fingerprint["backends"] == [
        "Attention backend not explicitly specified. Use fa3 backend by default."
    ]
    assert "torch" in stored.provenance.fingerprint["software"]


@pytest.mark.field_case("R09")
@pytest.mark.parametrize(("ratio", "outcome"), [(0.64, Outcome.REGRESSION), (1.36, Outcome.IMPROVED)])
def test_the_slower_of_two_backends_is_told_by_an_a_b_whatever_their_names(ratio: float, outcome: Outcome) -> None:
    pairs = list(zip(samples([1000.0] * 6), samples([1000.0 * ratio] * 6), strict=True))
    assert judge_ab(pairs).outcome is outcome


def test_the_choices_of_a_real_start_are_read_from_its_log() -> None:
    found = backends.chosen((DATA / "h200_v4mini_silent_stalls.server.log").read_text())
    assert "Use dsv4 attention backend for DeepseekV4ForCausalLM, setting page_size to 256." in found
    assert "Using DeepseekV4AttnBackend for dsv4 attention backend (CUDA)." in found


def test_equal_choices_of_several_ranks_are_one_and_what_users_say_later_is_none() -> None:
    line = "[2026-11-29 16:33:31 TP{}] Using DeepseekV4AttnBackend for dsv4 attention backend (CUDA).\n"
    ready = "[2026-11-29 16:34:00] The server is fired up and ready to roll!\n"
    later = "[2026-11-29 16:34:01] Receive: text='please use another backend'\n"
    assert len(backends.chosen(line.format(0) + line.format(1) + ready + later)) == 1


def test_sizes_that_vary_from_start_to_start_are_no_choice() -> None:
    log = (DATA / "h200_v4mini_silent_stalls.server.log").read_text()
    assert not [text for text in backends.chosen(log) if "avail mem" in text or "server_args" in text]
    again = (DATA / "h200_v4mini_jit_in_window.server.log").read_text()
    assert backends.chosen(log) == backends.chosen(again)
