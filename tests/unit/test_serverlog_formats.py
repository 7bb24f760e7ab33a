"""Batch lines of every version come out with the same meaning."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perfgate.serverlog import batches, fast, parse

LINES = tomllib.loads((Path(__file__).parent.parent / "data" / "lines_by_version.toml").read_text())
PREFILLS, DECODES = LINES["prefill"], LINES["decode"]


@pytest.mark.parametrize("version", PREFILLS)
def test_prefill_line_of_each_version_gives_the_same_counts(version: str) -> None:
    (line,) = parse(PREFILLS[version]).prefill
    assert (line.new_seqs, line.new_tokens, line.cached_tokens, line.running, line.queued) == (4, 8192, 126, 12, 3)
    assert (line.rank, line.token_usage) == ("TP0", 0.07)
    modern = "pending" in PREFILLS[version]
    assert (line.pending_tokens, line.graph, line.input_throughput) == (
        (24576, False, 18234.51) if modern else (None,) * 3
    )


@pytest.mark.parametrize("version", DECODES)
def test_decode_line_of_each_version_gives_the_same_counts(version: str) -> None:
    (line,) = parse(DECODES[version]).decode
    assert (line.running, line.queued, line.tokens, line.gen_throughput) == (2, 5, 3698, 50.46)
    assert (line.rank, line.token_usage) == ("TP0", 0.16)
    assert line.graph is (None if version == "0.4.1" else True)
    assert line.accept_length == {"0.4.6": 2.31, "0.5.15": 2.74, "0.5.23": 2.74}.get(version)


def test_hybrid_swa_line_keeps_both_usages_apart() -> None:
    (line,) = parse(DECODES["0.5.15"]).decode
    assert line.usages == {"full token usage": 0.05, "swa token usage": 0.16}


def test_pool_beside_the_kv_cache_does_not_make_it_look_full() -> None:
    (line,) = parse(DECODES["0.5.23 PD"]).decode
    assert line.token_usage == 0.16
    assert line.usages["pre-allocated usage"] == 0.90


@pytest.mark.parametrize(
    ("prefix", "rank", "fraction"),
    [
        ("[2026-11-15 04:01:51]", None, 0.0),
        ("[2026-11-15 04:01:51 TP3]", "TP3", 0.0),
        ("[2026-11-15 04:01:51.250 DP1 PP0 ATTN_CP0 MOE_DP2 TP12 EP7]", "DP1 PP0 ATTN_CP0 MOE_DP2 TP12 EP7", 0.25),
        ("[2026-11-15 04:01:51,500 TP0]", "TP0", 0.5),
        ("(Scheduler pid=123, ip=10.0.0.1) [2026-11-15 04:01:51 TP0]", "TP0", 0.0),
        ("\x1b[36m(Scheduler pid=123)\x1b[0m [2026-11-15 04:01:51 TP0]", "TP0", 0.0),
    ],
)
def test_time_and_rank_are_read_from_every_prefix(prefix: str, rank: str | None, fraction: float) -> None:
    message = DECODES["0.5.6"].partition("] ")[2]
    (line,) = parse(f"{prefix} {message}", tz=UTC).decode
    assert line.rank == rank
    assert line.time == datetime(2026, 11, 15, 4, 1, 51, tzinfo=UTC).timestamp() + fraction


def test_date_that_does_not_exist_leaves_the_line_without_a_time() -> None:
    (line,) = parse(DECODES["0.5.6"].replace("2025-12-15", "2025-13-45")).decode
    assert line.time is None
    assert line.running == 2


def test_cpu_engine_lines_keep_their_own_graph_label(data_dir: Path) -> None:
    log = parse((data_dir / "cpu_tiny_llama.server.log").read_bytes().decode())
    assert len(log.decode) == 61
    assert {(line.graph_label, line.graph) for line in log.decode} == {("cpu graph", False)}


def test_fast_and_general_reading_agree_on_every_line(data_dir: Path) -> None:
    lines = [*PREFILLS.values(), *DECODES.values()]
    for path in sorted(data_dir.glob("*.server.log")):
        lines += path.read_bytes().decode().split("\n")
    compared = 0
    for line in lines:
        found = fast.PREFILL.match(line)
        if found:
            general = batches.prefill(1, None, found[3][1:] or None, line.partition("] ")[2], line)
            assert fast.prefill(found, 1, None, line) == general
        found = fast.DECODE.match(line)
        if found:
            other = batches.decode(1, None, found[3][1:] or None, line.partition("] ")[2], line)
            assert fast.decode(found, 1, None, line) == other
            compared += 1
    assert compared > 180  # all decode lines of the real logs go the fast way
