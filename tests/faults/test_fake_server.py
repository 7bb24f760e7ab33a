"""SGLang's real client against a scripted server: what a lying or dying server looks like, and that none of it passes.

Each scenario names what perfgate.validity must find wrong with its result (field cases, part A2), by the result line with
its counters and with the log as well; an honest server has nothing wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from perfgate.diagnosis import Cause, Diagnosis, diagnose
from perfgate.serverlog import parse
from perfgate.validity import ProblemKind, check
from perfgate.workload import Plan, Sample, read_sample
from tests.fake.kit import Client, Ran, serving, write_tokenizer
from tests.fake.server import Behaviour

PLAN = Plan(concurrency=4, num_prompts=16, input_len=64, output_len=32)
EXPECTED_MODEL = "dsv4-under-test"
DEADLINE_S = 60.0
"""A client run takes 2.6 s on a loaded 2-core machine."""

TIMED = {
    ProblemKind.CONCURRENCY,
    ProblemKind.STANDSTILL,
    ProblemKind.INCONSISTENT,
    ProblemKind.TTFT_OUTLIER,
    ProblemKind.CLIENT_BOUND,
}
"""What a client that had to wait for a core shows. A window of a few ms is all client on a busy machine, so these are held
against a scenario only where it is about time."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    preloaded = Client(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))
    yield preloaded
    preloaded.stop()


def broken(sample: Sample, log: str = "", plan: Plan = PLAN) -> set[ProblemKind]:
    """What makes a result invalid, with the server's log or by the figures alone."""
    parsed = parse(log) if log else None
    return {p.kind for p in check(sample, parsed, plan, served_model_name=EXPECTED_MODEL) if p.invalid}


def measure(client: Client, behaviour: Behaviour, folder: Path, flush: bool = True) -> tuple[Sample, str]:
    """Run the client and read the one line it must add, with the counters around it, and the server's log."""
    with serving(behaviour, folder) as server:
        before = server.counters()
        ran = client.run(server.url, PLAN, folder, DEADLINE_S, flush=flush)
        assert len(ran.lines) == 1, ran.output[-2000:]
        return read_sample(ran.lines[0], ran.exit_code, before, server.counters()), server.log


def fail(client: Client, behaviour: Behaviour, folder: Path, seconds: float = DEADLINE_S) -> tuple[Ran, Diagnosis]:
    """Run the client where no result can come, and diagnose."""
    with serving(behaviour, folder) as server:
        ran = client.run(server.url, PLAN, folder, seconds)
        log = server.log
    assert ran.exit_code != 0
    assert ran.lines == ()
    return ran, diagnose(log, ran.exit_code, ran.output)


def test_honest_server_breaks_nothing(client, tmp_path):
    sample, log = measure(client, Behaviour(), tmp_path)
    assert broken(sample) - TIMED == set()
    assert broken(sample, log) - TIMED == set()


@pytest.mark.field_case("B10")
def test_without_a_flush_the_first_measured_prompt_is_a_prefix_hit_of_the_warm_up(client, tmp_path):
    sample, log = measure(client, Behaviour(), tmp_path, flush=False)
    assert broken(sample) - TIMED == {ProblemKind.CACHED_TOKENS}
    assert broken(sample, log) - TIMED == {ProblemKind.CACHED_TOKENS}
    assert sample.counters is not None
    assert sample.counters["cached_tokens_total"] == PLAN.input_len - 1


@pytest.mark.parametrize("with_log", [False, True], ids=["result line", "with log"])
@pytest.mark.parametrize(
    ("behaviour", "kinds"),
    [
        pytest.param(
            Behaviour(in_band_error=True),
            {ProblemKind.NO_TEXT, ProblemKind.LATENCY, ProblemKind.COUNTERS},
            marks=pytest.mark.field_case("B02"),
            id="error inside HTTP 200",
        ),
        pytest.param(
            Behaviour(abort_without_text=True),
            {ProblemKind.NO_TEXT, ProblemKind.LATENCY, ProblemKind.COUNTERS},
            marks=pytest.mark.field_case("B01"),
            id="abort without text",
        ),
        pytest.param(
            Behaviour(end_after=4),
            {ProblemKind.OUTPUT_LENGTH, ProblemKind.NO_TEXT, ProblemKind.COUNTERS},
            marks=pytest.mark.field_case("B19"),
            id="early end after 4 tokens",
        ),
        pytest.param(
            Behaviour(refuse_every=2),
            {
                ProblemKind.INCOMPLETE,
                ProblemKind.OUTPUT_LENGTH,
                ProblemKind.INPUT_LENGTH,
                ProblemKind.REQUEST_ERROR,
                ProblemKind.COUNTERS,
            },
            marks=pytest.mark.field_case("B03"),
            id="every second request 503",
        ),
        pytest.param(
            Behaviour(server_info_s=1.5),
            {ProblemKind.CONCURRENCY},
            marks=pytest.mark.field_case("B26"),
            id="slow server_info",
        ),
        pytest.param(
            Behaviour(served_model_name="yesterday", context_length=131072),
            {ProblemKind.WRONG_RESULT},
            marks=pytest.mark.field_case("C20"),
            id="stale server",
        ),
    ],
)
def test_misbehaviour_that_the_client_calls_a_success_is_invalid(client, tmp_path, behaviour, kinds, with_log):
    sample, log = measure(client, behaviour, tmp_path)
    assert sample.exit_code == 0
    found = broken(sample, log if with_log else "")
    assert kinds <= found
    assert found - kinds <= TIMED


@pytest.mark.field_case("B17")
def test_four_tokens_a_chunk_shift_ttft_and_stay_valid(client, tmp_path):
    sample, log = measure(client, Behaviour(chunk_tokens=4), tmp_path)
    assert broken(sample) - TIMED == set()
    assert broken(sample, log) - TIMED == set()
    # The first chunk carries four tokens of 2 ms each, and the server sleeps for all of them.
    assert sample.median_ttft_ms is not None
    assert sample.median_ttft_ms >= 8.0


@pytest.mark.field_case("B25")
def test_a_second_run_into_the_same_file_adds_exactly_one_line(client, tmp_path):
    measure(client, Behaviour(), tmp_path)
    measure(client, Behaviour(token_s=0.001), tmp_path)
    assert len((tmp_path / "result.jsonl").read_text().splitlines()) == 2


@pytest.mark.field_case("B04")
def test_all_requests_failing_after_warm_up_is_missing_and_says_so(client, tmp_path):
    ran, found = fail(client, Behaviour(fail_after=1), tmp_path)
    assert ran.exit_code == 1
    assert found.cause is Cause.CLIENT_FAILED
    assert "All requests failed" in found.advice
    assert any("500" in line for line in found.evidence)


@pytest.mark.field_case("B05")
def test_server_that_dies_in_mid_stream_is_missing_as_a_dead_server(client, tmp_path):
    _, found = fail(client, Behaviour(die_at_request=6), tmp_path)
    assert found.cause is Cause.SERVER_DIED


@pytest.mark.field_case("C08")
def test_server_that_dies_at_the_first_long_prompt_names_its_length(client, tmp_path):
    with serving(Behaviour(die_with_prompt_above=100), tmp_path) as server:
        short = client.run(server.url, PLAN, tmp_path, DEADLINE_S)
        assert short.exit_code == 0
        long = client.run(server.url, Plan(4, 16, 128, 32), tmp_path, DEADLINE_S)
        found = diagnose(server.log, long.exit_code, long.output)
    assert long.lines == ()
    assert (found.cause, found.details["last_prefill_tokens"]) == (Cause.ILLEGAL_ACCESS, 128)


@pytest.mark.field_case("C23")
def test_server_info_that_closes_the_socket_is_a_client_that_failed_after_the_measured_phase(client, tmp_path):
    (tmp_path / "result.jsonl").write_text('{"completed": 16}\n')
    _, found = fail(client, Behaviour(server_info_closes=True), tmp_path)
    assert found.cause is Cause.CLIENT_FAILED
    assert "after the measured phase" in found.advice


@pytest.mark.field_case("C16")
def test_stream_that_hangs_under_a_healthy_health_is_a_hang(client, tmp_path):
    with serving(Behaviour(hang_at_request=6), tmp_path) as server:
        ran = client.run(server.url, PLAN, tmp_path, seconds=8.0)
        assert requests.get(f"{server.url}/health", timeout=5).status_code == 200
        found = diagnose(server.log, ran.exit_code, ran.output)
    assert (ran.exit_code, ran.lines) == (124, ())
    assert found.cause is Cause.HANG_NO_PROGRESS
    assert found.details["total"] == PLAN.num_prompts
    assert found.details["done"] < PLAN.num_prompts


@pytest.mark.field_case("C22")
def test_tokenizer_that_the_client_cannot_load_is_named(client, tmp_path):
    with serving(Behaviour(), tmp_path) as server:
        ran = client.run(server.url, PLAN, tmp_path, DEADLINE_S, tokenizer=str(tmp_path))
        found = diagnose(server.log, ran.exit_code, ran.output)
        assert server.counters() == {}
    assert ran.exit_code == 1
    assert found.cause is Cause.CLIENT_TOKENIZER


def test_nothing_listening_is_missing_and_names_the_url(client, tmp_path):
    ran = client.run("http://127.0.0.1:1", PLAN, tmp_path, DEADLINE_S)
    assert (ran.exit_code, ran.lines) == (1, ())
    found = diagnose("", ran.exit_code, ran.output)
    assert found.cause is Cause.CLIENT_FAILED
    assert "Nothing answered" in found.advice
