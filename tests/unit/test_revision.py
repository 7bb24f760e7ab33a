"""``--against-commit``: the commit is found or the message says how to get it, and its files leave nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perfgate import revision
from perfgate.options import OptionError


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits: ``old`` (a tag) with one kernel, and a head that changes it, adds a recipe and ignores ``*.log``."""
    root = tmp_path / "repo"
    kernels = root / "kernels" / "dsv4_kernels"
    kernels.mkdir(parents=True)
    (kernels / "__init__.py").write_text("speed = 1\n")
    (root / "pyproject.toml").write_text("")
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "nothing yet")
    git(root, "tag", "empty")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "old")
    git(root, "tag", "old")
    (kernels / "__init__.py").write_text("speed = 2\n")
    (root / "recipe.toml").write_text("x = 1\n")
    (root / ".gitignore").write_text("*.log\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "head")
    return root


def test_a_commit_is_found_by_any_name_that_git_knows(repo: Path) -> None:
    sha = git(repo, "rev-parse", "HEAD~1")
    assert {revision.resolve(repo, name).sha for name in ("old", "HEAD~1", sha, sha[:8])} == {sha}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("olde", "no such commit here; fetch it"),
        ("0" * 40, "no such commit here"),
        ("HEAD:pyproject.toml", "no such commit here"),
        ("", "give a commit, branch or tag"),
        ("--output=x", "give a commit, branch or tag"),
        ("empty", "has no kernels/dsv4_kernels"),
    ],
)
def test_what_is_no_commit_with_kernels_is_one_clear_error(repo: Path, asked: str, said: str) -> None:
    with pytest.raises(OptionError, match=said) as error:
        revision.resolve(repo, asked)
    assert repr(asked) in str(error.value)


def test_a_shallow_clone_is_told_to_fetch_the_rest(repo: Path, tmp_path: Path) -> None:
    old = git(repo, "rev-parse", "old")
    git(tmp_path, "clone", "-q", "--depth", "1", repo.as_uri(), "shallow")
    with pytest.raises(OptionError, match=r"git fetch --unshallow \(in a workflow: fetch-depth: 0\)"):
        revision.resolve(tmp_path / "shallow", old)


def test_without_git_or_a_clone_the_message_names_what_is_needed(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    with pytest.raises(OptionError, match="needs git and a clone"):
        revision.resolve(tmp_path, "old")
    with pytest.raises(OptionError, match="is not the top of a clone"):
        revision.resolve(repo / "kernels", "old")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OptionError, match="git is not on the path"):
        revision.resolve(repo, "old")


def test_a_commit_is_written_out_whole_and_the_repository_is_as_before(repo: Path, tmp_path: Path) -> None:
    before = sorted(str(p.relative_to(repo)) for p in repo.rglob("*"))
    out = tmp_path / "out"
    out.mkdir()
    revision.resolve(repo, "old").export(out)
    assert (out / "kernels" / "dsv4_kernels" / "__init__.py").read_text() == "speed = 1\n"
    assert not (out / "recipe.toml").exists()
    assert sorted(str(p.relative_to(repo)) for p in repo.rglob("*")) == before
    assert git(repo, "worktree", "list").count("\n") == 0


def test_the_working_tree_is_written_out_as_it_lies_here(repo: Path, tmp_path: Path) -> None:
    (repo / "kernels" / "dsv4_kernels" / "__init__.py").write_text("speed = 3\n")
    (repo / "kernels" / "new.py").write_text("")
    (repo / "ignored.log").write_text("")
    (repo / "recipe.toml").unlink()
    revision.export_working_tree(repo, tmp_path / "out")
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert found == {".gitignore", "pyproject.toml", "kernels/new.py", "kernels/dsv4_kernels/__init__.py"}
    assert (tmp_path / "out" / "kernels" / "dsv4_kernels" / "__init__.py").read_text() == "speed = 3\n"


def test_notes_name_both_sides_and_what_else_differs(repo: Path) -> None:
    old = revision.resolve(repo, "old")
    (first, *others) = old.notes(repo / "recipe.toml")
    assert f"commit {old.sha[:12]} (old)" in first
    assert others == ["recipe.toml differs from that commit's: both sides ran the one that lies here"]
    (repo / "kernels" / "new.py").write_text("")
    (repo / "README.md").write_text("changed, and no kernel\n")
    assert "the new side has changes that are in no commit: kernels/new.py" in old.notes(repo / "recipe.toml")


def test_a_commit_with_the_same_kernels_is_said_to_be_the_same_server(repo: Path) -> None:
    same = "kernels/ and pyproject.toml are the same on both sides: a server was compared with itself"
    assert same in revision.resolve(repo, "HEAD").notes(repo / "recipe.toml")
    assert same not in revision.resolve(repo, "old").notes(repo / "recipe.toml")
    (repo / "kernels" / "new.py").write_text("")
    assert same not in revision.resolve(repo, "HEAD").notes(Path(os.devnull))
