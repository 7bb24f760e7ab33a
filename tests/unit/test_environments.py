"""The environments of ``--against-commit``: each holds its own side's kernels, is proved to be loaded, and goes again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfgate import environments, revision
from perfgate.server import ServerError

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "dsv4-perfgate"
version = "0"
[project.entry-points."sglang.srt.plugins"]
dsv4_kernels = "dsv4_kernels:register"
[tool.setuptools]
packages = ["dsv4_kernels"]
package-dir = { dsv4_kernels = "kernels/dsv4_kernels" }
"""


def project(root: Path, text: str = PROJECT) -> Path:
    (root / "kernels" / "dsv4_kernels").mkdir(parents=True)
    (root / "kernels" / "dsv4_kernels" / "__init__.py").write_text(f"side = {root.name!r}\n")
    (root / "pyproject.toml").write_text(text)
    return root


def environment(folder: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return env | environments.on_path(folder, {})


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Two built environments."""
    for name in ("old", "new"):
        environments.install(project(tmp_path / "source" / name), tmp_path / name, name)
    return tmp_path / "old", tmp_path / "new"


def test_a_server_is_proved_to_load_what_was_built_for_it_and_nothing_else(two: tuple[Path, Path]) -> None:
    old, new = two
    environments.prove(old, environment(old))
    environments.prove(new, environment(new) | environments.on_path(new, environment(old)))
    with pytest.raises(ServerError, match=r"would load the kernels of .*old.*, not those built for it in .*new"):
        environments.prove(new, environment(old))


def test_another_plug_in_under_the_same_name_is_refused(two: tuple[Path, Path], tmp_path: Path) -> None:
    old, _ = two
    other = tmp_path / "other" / "dsv4_perfgate-9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: dsv4-perfgate\nVersion: 9\n")
    (other / "entry_points.txt").write_text("[sglang.srt.plugins]\ndsv4_kernels = elsewhere:register\n")
    environments.prove(old, environment(old))
    # The kernels are the right ones; the plug-in that loads them is another distribution's.
    mixed = environment(old) | {"PYTHONPATH": f"{other.parent}{os.pathsep}{old}"}
    with pytest.raises(ServerError, match="would not load the plug-in"):
        environments.prove(old, mixed)


def test_what_the_path_held_before_stays_behind_the_built_kernels(tmp_path: Path) -> None:
    assert environments.on_path(tmp_path, {"PYTHONPATH": "/a"}) == {"PYTHONPATH": f"{tmp_path}{os.pathsep}/a"}
    assert environments.on_path(tmp_path, {}) == {"PYTHONPATH": str(tmp_path)}


def test_a_commit_that_cannot_be_built_is_named_with_the_tools_own_words(tmp_path: Path) -> None:
    broken = project(tmp_path / "broken", PROJECT.replace('packages = ["dsv4_kernels"]', 'packages = ["gone"]'))
    with pytest.raises(ServerError, match=r"kernels of commit abc could not be built.*gone"):
        environments.install(broken, tmp_path / "target", "commit abc")


def test_both_sides_are_built_once_and_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFGATE_CACHE", str(tmp_path / "cache"))
    left = tmp_path / "cache" / "against" / "4711"
    left.mkdir(parents=True)
    monkeypatch.setattr(revision.Commit, "export", lambda self, folder: project(folder / "x").rename(folder / "y"))
    monkeypatch.setattr(environments, "export_working_tree", lambda root, folder: (folder / "z").mkdir())
    built: list[str] = []

    def install(source: Path, target: Path, what: str) -> None:
        built.append(what)
        (target / "there").touch()

    monkeypatch.setattr(environments, "install", install)
    commit = revision.Commit(tmp_path, "a" * 40, "main")

    def interrupted() -> None:
        with environments.Environments(commit, lambda line: None) as sides:
            assert not left.exists(), "what a killed run left is in nobody's way"
            assert sides.old() != sides.new()
            assert (sides.new() / "there").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert built == ["commit aaaaaaaaaaaa", "this checkout"]
    assert not (tmp_path / "cache" / "against").exists()


def test_a_working_tree_that_cannot_be_copied_is_a_server_that_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    commit = revision.Commit(tmp_path, "a" * 40, "main")
    with (
        environments.Environments(commit, lambda line: None) as sides,
        pytest.raises(ServerError, match="files of commit aaaaaaaaaaaa could not be written out: git archive"),
    ):
        sides.old()
