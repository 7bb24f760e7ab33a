"""A log that is cut or replaced while it is read is noticed, whatever it holds afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfgate.server.logfile import LogFile

LINE = b"[2026-11-29 12:00:00] Decode batch, #running-req: 1\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "server.log"
    found.write_bytes(LINE * 20)
    return found


def test_a_log_that_only_grows_is_not_lost(path: Path) -> None:
    log = LogFile(path)
    mark = log.mark()
    with path.open("ab") as sink:
        sink.write(LINE)
    assert not log.lost(mark)
    assert log.since(mark) == LINE.decode()


def test_an_empty_log_that_grows_is_not_lost(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    log = LogFile(tmp_path / "log")
    mark = log.mark()
    (tmp_path / "log").write_bytes(LINE)
    assert not log.lost(mark)


def test_a_cut_log_whose_writer_goes_on_at_its_old_offset_is_lost(path: Path) -> None:
    log = LogFile(path)
    with path.open("rb+") as sink:  # not for appending, as a shell's > redirection
        sink.seek(0, os.SEEK_END)
        mark = log.mark()
        os.truncate(path, 0)
        sink.write(LINE)
    assert path.stat().st_size > mark
    assert log.lost(mark)


def test_a_cut_log_that_has_grown_past_the_mark_again_is_lost(path: Path) -> None:
    log = LogFile(path)
    mark = log.mark()
    os.truncate(path, 0)
    with path.open("ab") as sink:
        sink.write(LINE.replace(b"1\n", b"2\n") * 30)
    assert path.stat().st_size > mark
    assert log.lost(mark)


def test_what_was_written_after_the_mark_and_cut_away_is_lost(path: Path) -> None:
    log = LogFile(path)
    with path.open("rb+") as sink:
        sink.seek(0, os.SEEK_END)
        mark = log.mark()
        sink.write(LINE)
        sink.flush()
        os.truncate(path, mark)
        sink.write(LINE)
    assert log.lost(mark)


def test_a_log_that_was_moved_away_is_lost(path: Path) -> None:
    log = LogFile(path)
    mark = log.mark()
    path.rename(path.with_suffix(".1"))
    path.write_bytes(LINE * 40)
    assert log.lost(mark)


def test_a_log_that_was_deleted_is_lost(path: Path) -> None:
    log = LogFile(path)
    mark = log.mark()
    path.unlink()
    assert log.lost(mark)
