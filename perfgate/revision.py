"""A commit of this checkout for ``--against-commit``: found, compared with what lies here, and written out (edge)."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from perfgate.options import OptionError

KERNELS = ("kernels", "pyproject.toml")
"""What decides which kernels a server runs."""


class RevisionError(RuntimeError):
    """A commit, or the working tree, that cannot be written out; the message has git's own words."""


@dataclass(frozen=True)
class Commit:
    """One commit of the checkout at ``root``. ``asked`` is what the user called it."""

    root: Path
    sha: str
    asked: str

    @property
    def short(self) -> str:
        return self.sha[:12]

    def export(self, folder: Path) -> None:
        """Write the commit's files into ``folder``. Raises RevisionError.

        By ``git archive`` and not by a worktree, so that a run which is killed leaves no trace in the repository.
        """
        data = _git(self.root, "archive", "--format=tar", self.sha)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")

    def differences(self, *paths: str) -> list[str]:
        """Files below ``paths`` that differ between the commit and what lies here, new ones included. Raises RevisionError."""
        changed = _git(self.root, "diff", "--name-only", "-z", "--no-renames", self.sha, "--", *paths)
        new = _git(self.root, "ls-files", "-z", "--others", "--exclude-standard", "--", *paths)
        return sorted(set(_names(changed + new)))

    def notes(self, recipe_file: Path) -> list[str]:
        """What a reader of the result must know of its two sides. Raises RevisionError."""
        said = [
            f"judged against commit {self.short} ({self.asked}) in pairs: its kernels on one side and this checkout's on "
            "the other, each built into an environment of its own; recipe, harness and SGLang are the same"
        ]
        if not self.differences(*KERNELS):
            said.append("kernels/ and pyproject.toml are the same on both sides: a server was compared with itself")
        if uncommitted := Commit(self.root, "HEAD", "HEAD").differences(*KERNELS):
            said.append(f"the new side has changes that are in no commit: {_some(uncommitted)}")
        inside = recipe_file.resolve().is_relative_to(self.root.resolve())
        if inside and self.differences(str(recipe_file.resolve().relative_to(self.root.resolve()))):
            said.append(f"{recipe_file.name} differs from that commit's: both sides ran the one that lies here")
        return said


def resolve(root: Path, asked: str) -> Commit:
    """The commit that ``asked`` names in the checkout at ``root``. Raises OptionError with what to do instead."""
    name = f"--against-commit {asked!r}"
    if not asked.strip() or asked.startswith("-"):
        raise OptionError(f"{name}: give a commit, branch or tag, for example --against-commit main")
    try:
        top = _git(root, "rev-parse", "--show-toplevel").decode().strip()
    except RevisionError as error:
        raise OptionError(f"{name} needs git and a clone of this repository with its history: {error}") from None
    if Path(top).resolve() != root.resolve():
        raise OptionError(f"{name}: {root} is not the top of a clone, {top} is; run the suite in a clone of its own")
    try:
        sha = _git(root, "rev-parse", "--verify", "--quiet", f"{asked}^{{commit}}").decode().strip()
    except RevisionError:
        raise OptionError(f"{name}: no such commit here; {_how_to_get_it(root)}") from None
    found = Commit(root, sha, asked)
    if not _git(root, "ls-tree", "--name-only", sha, "kernels/dsv4_kernels"):
        raise OptionError(f"{name}: commit {found.short} has no kernels/dsv4_kernels; give a later one")
    return found


def export_working_tree(root: Path, folder: Path) -> None:
    """Copy what lies in the checkout at ``root``, committed or not, but for what git ignores. Raises RevisionError."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in _names(listed):
        source, target = root / name, folder / name
        if not source.is_file():
            continue  # deleted and not yet committed so
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _how_to_get_it(root: Path) -> str:
    if _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        return "this clone is shallow: git fetch --unshallow (in a workflow: fetch-depth: 0)"
    return "fetch it (git fetch origin), or see what there is with git log --all"


def _names(listed: bytes) -> list[str]:
    return [name.decode(errors="surrogateescape") for name in listed.split(b"\0") if name]


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _git(root: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, timeout=120, check=False)
    except FileNotFoundError:
        raise RevisionError("git is not on the path") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RevisionError(f"git {arguments[0]}: {error}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise RevisionError(f"git {arguments[0]}: {said}")
    return done.stdout
