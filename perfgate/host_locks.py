"""Locks that hold for the whole host, whichever user or service takes them: a file each in one folder, held by flock (edge).

Anybody may put something into that folder, so nothing in it is trusted: links are not followed, nothing is written, and what is
there already is opened without O_CREAT (which Linux refuses for another user's file in such a folder, fs.protected_regular).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import stat
from pathlib import Path

HOST = Path("/tmp/dsv4-perfgate")
"""No variable of a login session or service moves it, and a reboot empties it; ``$PERFGATE_LOCKS`` is for those who mean it."""

TRIES = 10
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class LockError(RuntimeError):
    """A lock cannot be kept; the message names the file, whose it is, and what to do."""


def folder(make: bool = True) -> Path:
    """The folder of this host's locks, made for all users where it is not there (and is asked for). Raises LockError."""
    path = Path(os.environ.get("PERFGATE_LOCKS") or HOST)
    try:
        if make:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                path.chmod(0o1777)  # past the umask; sticky, so that none removes another's file
        if os.path.lexists(path) and not stat.S_ISDIR(path.lstat().st_mode):
            raise NotADirectoryError("it is a link or a file, and no folder")
    except OSError as error:
        raise LockError(_told(path, error)) from None
    return path


def take(path: Path, *, shared: bool = False) -> int | None:
    """Hold the lock, with others that share it or alone: a number for ``release``, or None where others hold it.

    A process that ends holds it no longer, however it ends. Raises LockError.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    for _ in range(TRIES):
        number = _opened(path)
        try:
            fcntl.flock(number, kind | fcntl.LOCK_NB)
            if _is_there(number, path):
                with contextlib.suppress(OSError):
                    os.utime(number)  # /tmp is cleared of what nobody touched for days
                return number
            os.close(number)  # removed since it was opened: whoever comes next would lock another file
        except BlockingIOError:
            os.close(number)
            return None
        except OSError as error:
            os.close(number)
            raise LockError(_told(path, error)) from None
    raise LockError(_told(path, OSError("it is replaced again and again")))


def release(number: int) -> None:
    """Give the lock back, also where a forked child has the file open still."""
    fcntl.flock(number, fcntl.LOCK_UN)
    os.close(number)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock now. Makes no file. Raises LockError where that cannot be told."""
    try:
        if not path.exists():
            return False
    except OSError as error:
        raise LockError(_told(path, error)) from None
    number = take(path)
    if number is not None:
        release(number)
    return number is None


def _opened(path: Path) -> int:
    try:
        try:
            number = os.open(path, _FLAGS)
        except FileNotFoundError:
            try:
                number = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(number, 0o666)  # past the umask
            except FileExistsError:  # made by another run this very moment
                number = os.open(path, _FLAGS)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise OSError("it is no ordinary file")
    except OSError as error:
        raise LockError(_told(path, error)) from None
    return number


def _is_there(number: int, path: Path) -> bool:
    mine = os.fstat(number)
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _told(path: Path, error: OSError) -> str:
    why = error.strerror or str(error)
    for one in (path, path.parent):
        try:
            found = one.lstat()
        except OSError:
            continue
        mode = "1777" if stat.S_ISDIR(found.st_mode) else "0666"
        whose = f"{one} is {_user(found.st_uid)}'s, {stat.filemode(found.st_mode)}"
        return f"{path}: no lock can be kept there ({why}). {whose}: it has to be removed, or to get mode {mode}"
    return f"{path}: no lock can be kept there ({why})"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
