"""The server's command line, its environment, and the proof that the server is the one asked for."""

from __future__ import annotations

from pathlib import Path

from perfgate import recipe
from perfgate.server import command, http

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")


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
