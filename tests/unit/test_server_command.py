"""The server's command line, its environment, and the proof that the server is the one asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import environment, jit_caches, jit_files, recipe
from perfgate.server import command, http

RECIPES = Path(__file__).parents[2] / "recipes"
RECIPE = recipe.load(RECIPES / "cpu-tiny.toml")
ELSEWHERE = dict.fromkeys((*jit_caches.VARIABLES, "XDG_CACHE_HOME", "TRITON_HOME"), "/scratch")
"""A caller whose compile caches are on another disk."""


def test_flags_are_written_as_sglang_reads_them() -> None:
    argv = command.argv(RECIPE, Path("m"), 1234, "name")
    assert argv[argv.index("--max-total-tokens") + 1] == "65536"
    assert "--enable-metrics" in argv
    assert "True" not in argv
    assert argv[argv.index("--host") + 1] == "127.0.0.1"


def test_the_callers_sglang_settings_do_not_leak_into_the_server() -> None:
    caller = {"SGLANG_TORCH_PROFILER_DIR": "x", "DSV4_PATCHES": "indexer", "HOME": "h", "TRITON_INTERPRET": "1"}
    env = command.environment(RECIPE, caller, "id")
    assert not {"SGLANG_TORCH_PROFILER_DIR", "TRITON_INTERPRET"} & set(env)
    assert env["DSV4_PATCHES"] == ""
    assert env["HOME"] == "h"
    assert env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert env[command.MARK] == "id"


@pytest.mark.parametrize("variable", jit_caches.VARIABLES)
@pytest.mark.parametrize("name", ["cpu-tiny", "v4mini-patched"])
def test_a_server_compiles_into_the_recipes_caches_wherever_the_callers_are(name: str, variable: str) -> None:
    env = command.environment(recipe.load(RECIPES / f"{name}.toml"), ELSEWHERE | {"HOME": "/home/gate"}, "id")
    assert env[variable].startswith("/home/gate")


@pytest.mark.parametrize("variable", jit_caches.VARIABLES)
def test_a_kernel_compiled_by_any_of_the_servers_compilers_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    stock = recipe.load(RECIPES / "v4mini-stock.toml")
    caller = dict.fromkeys(ELSEWHERE, str(tmp_path / "scratch")) | {"HOME": str(tmp_path / "home")}
    folder = Path(command.environment(stock, caller, "id")[variable])
    # FlashInfer's variable names the folder above a path of its own (flashinfer/jit/env.py).
    inside = ".cache/flashinfer/0.6.12/90a/cached_ops/name" if variable == "FLASHINFER_WORKSPACE_BASE" else "hash"
    made = folder / inside / "kernel.so"
    made.parent.mkdir(parents=True)
    made.write_bytes(b"compiled")
    assert [Path(file).name for file in jit_files.fresh(stock.watched_caches, made.stat().st_mtime - 1)] == [
        "kernel.so"
    ]


def test_a_recipe_puts_a_cache_elsewhere_by_naming_its_folder(tmp_path: Path) -> None:
    listed = ["$DISK/jit/triton", str(tmp_path / ".cache" / "flashinfer"), "~/.cache/deep_gemm/", "/data/other"]
    chosen = RECIPE.model_copy(
        update={"device": "cuda", "server": RECIPE.server.model_copy(update={"jit_caches": listed})}
    )
    env = command.environment(chosen, ELSEWHERE | {"HOME": "/home/gate", "DISK": "/data"}, "id")
    assert env["TRITON_CACHE_DIR"] == "/data/jit/triton/cache"
    assert env["FLASHINFER_WORKSPACE_BASE"] == str(tmp_path)
    assert env["FLASHINFER_CUBIN_DIR"] == str(tmp_path / ".cache" / "flashinfer" / "cubins")
    assert env["SGLANG_DG_CACHE_DIR"] == env["DG_JIT_CACHE_DIR"] == "/home/gate/.cache/deep_gemm"
    assert env["TILELANG_CACHE_DIR"] == "/home/gate/.tilelang/cache"
    assert chosen.watched_caches[:4] == listed
    assert "~/.triton" not in chosen.watched_caches
    assert "~/.tilelang" in chosen.watched_caches


def test_where_the_caches_are_leaves_stored_fingerprints_as_they_were() -> None:
    env = command.environment(recipe.load(RECIPES / "v4mini-stock.toml"), ELSEWHERE | {"HOME": "/home/gate"}, "id")
    assert not {*jit_caches.VARIABLES} & environment.relevant(env).keys()


def test_a_server_with_another_name_version_or_setting_is_not_ours() -> None:
    info = {"served_model_name": "name", "version": "0.5.15.post1", "max_total_tokens": 65536, "device": "cpu"}
    assert command.disagreements(RECIPE, info, "name") == []
    for key, value in {
        "served_model_name": "other",
        "version": "0.5.14",
        "max_total_tokens": 1024,
        "device": "cuda",
    }.items():
        found = command.disagreements(RECIPE, info | {key: value}, "name")
        assert len(found) == 1
        assert repr(value) in found[0]


def test_counters_are_summed_over_labels_and_absent_ones_are_zero() -> None:
    text = (
        "# TYPE sglang:num_requests_total counter\n"
        'sglang:num_requests_total{is_streaming="true",model_name="a"} 5.0\n'
        'sglang:num_requests_total{is_streaming="false",model_name="a"} 2.0\n'
        'sglang:generation_tokens_total{model_name="a"} 1.5e+02\n'
        'sglang:gen_throughput{model_name="a"} 77.0\n'
    )
    found = http.parse_counters(text)
    assert found["num_requests_total"] == 7
    assert found["generation_tokens_total"] == 150
    assert found["num_aborted_requests_total"] == 0
    assert "gen_throughput" not in found
