"""Kernels compiled while a sample ran are seen by the files that they leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfgate import jit_files
from perfgate.validity import ProblemKind

START = 1_000_000.0


def put(path: Path, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    os.utime(path, (seconds, seconds))


def test_a_kernel_written_in_the_window_is_invalid_and_named_without_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / ".triton" / "cache" / "AB" / "kernel.cubin", START + 1)
    put(tmp_path / ".triton" / "cache" / "CD" / "kernel.cubin", START - 60)
    (found,) = jit_files.check(["~/.triton", "~/.tilelang"], START)
    assert found.kind is ProblemKind.JIT
    assert found.invalid
    assert found.evidence == (".triton/cache/AB/kernel.cubin",)


def test_nothing_new_is_no_problem(tmp_path: Path) -> None:
    put(tmp_path / "a.so", START - 1)
    assert jit_files.check([str(tmp_path), str(tmp_path / "missing")], START) == []


def test_files_that_a_mere_load_touches_do_not_count(tmp_path: Path) -> None:
    put(tmp_path / "kernel.lock", START + 1)
    put(tmp_path / "index.txt", START + 1)
    assert jit_files.fresh([str(tmp_path)], START) == []


@pytest.mark.parametrize("name", ["cutlass_dsl_1a2b.mlir", "ab/cabc123.py"])
def test_what_every_compiler_leaves_counts(tmp_path: Path, name: str) -> None:
    put(tmp_path / name, START + 1)
    assert len(jit_files.fresh([str(tmp_path)], START)) == 1


def test_triton_below_a_graph_that_sglang_compiled_whole_is_not_too_deep(tmp_path: Path) -> None:
    # SGLANG_CACHE_DIR/torch_compile_cache/HASH/RANK/NAME/triton_cache/HASH (srt/compilation/backend.py).
    put(
        tmp_path.joinpath("torch_compile_cache", "h", "rank_0_0", "backbone", "triton_cache", "H", "k.cubin"), START + 1
    )
    assert len(jit_files.fresh([str(tmp_path)], START)) == 1


def test_what_is_written_after_the_window_is_not_the_samples(tmp_path: Path) -> None:
    put(tmp_path / "a.so", START + 9)
    assert jit_files.fresh([str(tmp_path)], START, START + 5) == []


def test_the_look_is_bounded_in_depth(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * (jit_files.MAX_DEPTH - 1))
    put(deep / "seen.so", START + 1)
    put(deep / "d" / "unseen.so", START + 1)
    assert [Path(f).name for f in jit_files.fresh([str(tmp_path)], START)] == ["seen.so"]
