"""Locks that all users of a host share: one folder whoever asks, nothing in it trusted, and a word where it cannot be used."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate import gpu, host_locks, session
from perfgate.doctor.collect import collect
from perfgate.gpu import GpuError
from perfgate.host_locks import LockError
from perfgate.server import ServerError


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host of this test's own."""
    monkeypatch.setattr(host_locks, "HOST", tmp_path / "host")
    monkeypatch.setattr(session, "LOCK_SECONDS", 0.0)
    for name in ("PERFGATE_LOCKS", "PERFGATE_SHARE_HOST"):
        monkeypatch.delenv(name, raising=False)
    # The usual one is locked while another test measures for real.
    monkeypatch.setenv("PERFGATE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "host"


@contextlib.contextmanager
def run(cache: Path, monkeypatch: pytest.MonkeyPatch, shares: bool = False) -> Iterator[None]:
    """A measuring run of some user, whose caches and session folders are their own."""
    with monkeypatch.context() as theirs:
        theirs.setenv("PERFGATE_CACHE", str(cache))
        theirs.setenv("XDG_RUNTIME_DIR", str(cache / "session"))
        theirs.setenv("PERFGATE_SHARE_HOST", "1" if shares else "")
        held = session.measuring(lambda line: None)
        held.__enter__()
    try:
        yield
    finally:
        held.__exit__(None, None, None)


def test_the_folder_is_the_same_in_a_login_session_and_in_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFGATE_LOCKS", raising=False)
    found = set()
    for session_folder in ("", "/run/user/1000"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", session_folder)
        found.add(host_locks.folder(make=False))
    assert found == {Path("/tmp/dsv4-perfgate")}


def test_folder_and_locks_are_everyones_whatever_the_umask(host: Path) -> None:
    old = os.umask(0o077)
    try:
        with gpu.lock_gpus(["GPU-aa"]):
            assert stat.S_IMODE(host.stat().st_mode) == 0o1777
            assert stat.S_IMODE((host / "gpu-GPU-aa.lock").stat().st_mode) == 0o666
    finally:
        os.umask(old)


def test_two_users_with_caches_of_their_own_do_not_measure_each_other(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run(tmp_path / "a", monkeypatch):
        with pytest.raises(ServerError, match=r"another run has been measuring on this host.*host/measure\.lock"):
            run(tmp_path / "b", monkeypatch).__enter__()
        with gpu.lock_gpus(["GPU-aa"]):
            monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
            with pytest.raises(GpuError, match="GPU-aa is locked by another run"):
                gpu.lock_gpus(["GPU-aa"]).__enter__()
    with run(tmp_path / "b", monkeypatch):
        pass


def test_runs_that_share_the_host_keep_out_every_other_run_and_none_of_their_own(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run(tmp_path / "gpu0", monkeypatch, shares=True), run(tmp_path / "gpu1", monkeypatch, shares=True):
        with pytest.raises(ServerError, match="another run"):
            run(tmp_path / "other", monkeypatch).__enter__()
        with pytest.raises(ServerError, match=r"another run.*gpu1/measure\.lock"):
            run(tmp_path / "gpu1", monkeypatch, shares=True).__enter__()
    with run(tmp_path / "other", monkeypatch), pytest.raises(ServerError, match="another run"):
        run(tmp_path / "gpu0", monkeypatch, shares=True).__enter__()


def test_a_run_that_waits_says_so_and_goes_on_when_the_other_ends(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LOCK_SECONDS", 60.0)
    monkeypatch.setenv("PERFGATE_CACHE", str(tmp_path / "b"))
    held = run(tmp_path / "a", monkeypatch)
    held.__enter__()
    said: list[str] = []

    def show(line: str) -> None:
        said.append(line)
        held.__exit__(None, None, None)

    with session.measuring(show):
        assert said == ["another run is measuring on this host; waiting, at most 60 s"]


HOLD = """
import sys, pathlib
from perfgate import host_locks
assert host_locks.take(pathlib.Path(sys.argv[1])) is not None
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.mark.timeout(60)
def test_a_run_that_is_killed_holds_nothing(host: Path) -> None:
    path = host_locks.folder() / "x.lock"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert host_locks.is_held(path)
        other.kill()
    assert not host_locks.is_held(path)


def test_another_users_lock_file_is_opened_without_asking_to_make_it(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fs.protected_regular refuses O_CREAT, for root too, where the file in such a folder is another user's.
    path = host_locks.folder() / "x.lock"
    path.touch()
    path.chmod(0o444)
    asked: list[int] = []
    monkeypatch.setattr(
        os, "open", lambda file, flags, *mode, real=os.open: asked.append(flags) or real(file, flags, *mode)
    )
    number = host_locks.take(path)
    assert number is not None
    host_locks.release(number)
    (flags,) = asked
    assert not flags & (os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_RDWR)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("trap", ["link", "dangling", "pipe"])
def test_what_somebody_put_in_a_locks_place_is_neither_followed_nor_waited_for(
    host: Path, tmp_path: Path, trap: str
) -> None:
    victim, path = tmp_path / "victim", host_locks.folder() / "gpu-GPU-aa.lock"
    if trap == "link":
        victim.write_text("precious")
        victim.chmod(0o600)
    if trap == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)
    with pytest.raises(GpuError, match="it has to be removed"):
        gpu.lock_gpus(["GPU-aa"]).__enter__()
    if trap == "link":
        assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("precious", 0o600)
    assert victim.exists() == (trap == "link")


@pytest.mark.parametrize("trap", ["link", "file"])
def test_a_folder_that_is_none_is_told_by_run_and_doctor(
    host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    (tmp_path / "theirs").mkdir()
    host.symlink_to(tmp_path / "theirs") if trap == "link" else host.touch()
    with pytest.raises(ServerError, match="no lock can be kept there"):
        run(tmp_path / "a", monkeypatch).__enter__()
    with pytest.raises(GpuError, match="no lock can be kept there"):
        gpu.lock_gpus(["GPU-aa"]).__enter__()
    assert list((tmp_path / "theirs").iterdir()) == []
    assert "no lock can be kept there" in collect(tmp_path).lock_problem


def test_a_folder_of_another_user_that_cannot_be_used_is_told_with_its_owner(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = host_locks.folder()
    folder.chmod(0o755)

    def refused(*unused: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(LockError, match=r"Permission denied\)\. .*host is \w+'s, drwxr-xr-x: .* mode 1777"):
        host_locks.take(folder / "x.lock")


def test_a_lock_file_that_was_removed_meanwhile_is_made_anew(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = host_locks.folder() / "x.lock"
    calls: list[int] = []

    def flock(number: int, kind: int, real: object = host_locks.fcntl.flock) -> None:
        calls.append(kind)
        if len(calls) == 1:
            path.unlink()
        real(number, kind)  # type: ignore[operator]

    monkeypatch.setattr(host_locks.fcntl, "flock", flock)
    number = host_locks.take(path)
    assert number is not None
    assert path.exists()
    assert host_locks.is_held(path)
    host_locks.release(number)
    monkeypatch.setattr(host_locks, "_is_there", lambda number, path: False)
    with pytest.raises(LockError, match="replaced again and again"):
        host_locks.take(path)


def test_a_lock_in_use_looks_young_to_what_clears_the_folder(host: Path) -> None:
    path = host_locks.folder() / "x.lock"
    path.touch()
    os.utime(path, (1e9, 1e9))
    number = host_locks.take(path)
    assert number is not None
    host_locks.release(number)
    assert path.stat().st_mtime > time.time() - 60


def test_the_doctor_sees_a_run_of_another_user(host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run(tmp_path / "theirs", monkeypatch):
        assert collect(tmp_path).lock_holder == str(host / "measure.lock")
    found = collect(tmp_path)
    assert (found.lock_holder, found.lock_problem) == ("", "")
