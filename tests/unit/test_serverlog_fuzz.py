"""Whatever a log holds, reading it ends in a log or in ServerLogError."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfgate.serverlog import Parser, ServerLog, ServerLogError, parse, read_file

DATA = Path(__file__).parent.parent / "data"
LOGS = {path.name: path.read_bytes().decode() for path in sorted(DATA.glob("*.server.log"))}
DEADLINE = 5_000
"""Milliseconds for one example: a hang is found, a machine that is busy with other things is not."""
quick = settings(
    max_examples=100,
    deadline=DEADLINE,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,  # the file is written anew for each example
    ],
)
# Pieces from which near misses are made: heads, separators, numbers of all sizes, prefixes, controls.
PIECES = [
    "[2026-11-15 04:01:51 TP0] ",
    "[2026-13-45 99:99:99] ",
    "[2026-11-15 04:01:51.5 DP0 TP1]",
    "Prefill batch, ",
    "Decode batch. ",
    "Decode batch [7], ",
    "#running-req: 3, ",
    "#queue-req: 0",
    "#token: 9999999999999999999999, ",
    "#new-seq: 1, #new-token: 2, #cached-token: 3, ",
    "token usage: nan, ",
    "full token usage: 1e999, ",
    "cuda graph: True, ",
    "gen throughput (token/s): inf, ",
    'INFO:     1.2.3.4:5 - "POST /generate HTTP/1.1" 200',
    "Traceback (most recent call last):",
    "server_args=ServerArgs(page_size=0, served_model_name='",
    "Capture target decode CUDA graph begin. bs=[1, 2, ",
    "Capturing batches (bs=99999999999 ",
    "\r",
    "\n",
    "\x00",
    "\u2028",
    ", ",
    ": ",
    "-1",
]


def _reads(text: str) -> ServerLog | None:
    try:
        return parse(text)
    except ServerLogError:
        return None


@quick
@given(st.text())
def test_arbitrary_text_gives_a_log_or_its_error(text: str) -> None:
    _reads(text)


@quick
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=60).map("".join))
def test_near_misses_give_a_log_or_its_error_and_only_counts_that_stand_there(text: str) -> None:
    log = _reads(text)
    for decode in log.decode if log else ():
        assert f"#running-req: {decode.running}" in decode.raw
        assert "Decode batch" in decode.raw


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A stretch of a real log with a few cuts, doublings, insertions and flipped characters."""
    text = LOGS[draw(st.sampled_from(sorted(LOGS)))]
    start = draw(st.integers(0, len(text) - 1))
    text = text[start : start + draw(st.integers(1, 8000))]
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(text)))
        to = at + draw(st.integers(0, 40))
        insert = draw(st.sampled_from(PIECES) | st.text(max_size=8) | st.just(text[at:to] * 2))
        text = text[:at] + insert + text[to:]
    return text


@quick
@given(mutated())
def test_mutated_real_log_gives_a_log_or_its_error(text: str) -> None:
    log = _reads(text)
    if log:
        assert len(log.prefill) + len(log.decode) <= text.count("batch")
        assert all(event.fields is not None for event in log.events)


@quick
@given(mutated(), st.integers(1, 5000))
def test_feeding_in_pieces_gives_what_the_whole_gives(text: str, step: int) -> None:
    whole, pieces = Parser(), Parser()
    lines = text.split("\n")
    whole.feed(lines)
    for start in range(0, len(lines), step):
        pieces.feed(lines[start : start + step])
    try:
        expected = whole.finish(allow_empty=True)
    except ServerLogError:
        return
    assert pieces.finish(allow_empty=True) == expected


@quick
@given(data=st.binary(max_size=3000), start=st.integers(0, 3000), end=st.none() | st.integers(0, 3000))
def test_arbitrary_bytes_and_offsets_give_a_log_or_its_error(
    tmp_path: Path, data: bytes, start: int, end: int | None
) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    try:
        log = read_file(path, start, end)
    except ServerLogError:
        return
    assert start <= log.end_offset <= len(data)
