"""What makes results comparable: the same machine is the same at every start, and a copy knows its commit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from gpu_kit import FakeNvml

from perfgate import fingerprint, gpu

ROOT = Path(__file__).parents[2]


def test_a_gpu_host_whose_memory_grows_as_it_is_used_stays_the_same_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for total in (31, 252):
        monkeypatch.setattr(psutil, "virtual_memory", lambda total=total: SimpleNamespace(total=total * 2**30))
        found.append(fingerprint.collect({}, gpu.describe(FakeNvml())))
    assert found[0] == found[1]


def test_a_copy_without_git_has_the_commit_that_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERFGATE_COMMIT", raising=False)
    assert fingerprint.git_commit(tmp_path) is None
    monkeypatch.setenv("PERFGATE_COMMIT", "0123456789ab")
    assert fingerprint.git_commit(tmp_path) == "0123456789ab"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fingerprint.git_commit(ROOT) == "0123456789ab"
    monkeypatch.undo()
    assert fingerprint.git_commit(ROOT) != "0123456789ab"
