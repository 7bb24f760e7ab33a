"""What the plug-in is asked for, what it refuses, and how it stops a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dsv4_kernels.sglang_plugin import plugin, register
from dsv4_kernels.sglang_plugin.seams import seams_for
from dsv4_kernels.sglang_plugin.settings import (
    FALLBACK_PATCHES,
    KERNEL_PATCHES,
    PluginError,
    Settings,
    choose_patches,
    read_settings,
)
from dsv4_kernels.sglang_plugin.switches import conflicts

REPOSITORY = Path(__file__).parents[2]


def patches(arch, **environ):
    return choose_patches(read_settings(environ), arch)


@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_without_a_list_all_kernel_patches_are_applied_where_they_suit_the_card(arch):
    assert patches(arch) == KERNEL_PATCHES


@pytest.mark.parametrize("arch", [None, "sm_80", "sm_100"])
def test_without_a_list_nothing_is_applied_where_nothing_suits(arch):
    assert patches(arch) == ()


@pytest.mark.parametrize("raw", ["", "none", " None "])
def test_an_empty_list_means_none(raw):
    assert patches("sm_90", DSV4_PATCHES=raw) == ()


def test_a_list_is_taken_whatever_its_order_and_spaces():
    assert patches("sm_90", DSV4_PATCHES=" topk, sparse_mla,") == ("sparse_mla", "topk")


@pytest.mark.parametrize("arch", [None, "sm_80", "sm_100"])
def test_a_patch_that_was_asked_for_and_does_not_suit_the_card_is_refused_by_name(arch):
    with pytest.raises(PluginError, match="sparse_mla"):
        patches(arch, DSV4_PATCHES="sparse_mla")


def test_the_fallback_of_a_hopper_card_is_refused_on_sm_120_where_it_is_what_sglang_does_anyway():
    with pytest.raises(PluginError, match="this card is sm_120"):
        patches("sm_120", DSV4_PATCHES="fallback_sparse_mla")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"DSV4_PATCHES": "sparse_mla,attention"}, "attention is no patch"),
        ({"DSV4_PATCHES": "topk,topk"}, "twice"),
        ({"DSV4_PATCHES": "indexer,fallback_indexer"}, "both replace one function"),
        ({"DSV4_PATCHES": "topk", "DSV4_BROKEN": "indexer"}, "DSV4_BROKEN='indexer' must be one"),
        ({"DSV4_BROKEN": "indexer"}, "DSV4_BROKEN='indexer' must be one"),
        ({"DSV4_FALLBACK": "topk"}, "fallback_topk is no patch"),
        ({"DSV4_PATCHES": "sparse_mla", "DSV4_FALLBACK": "indexer,sparse_mla"}, "both replace one function"),
    ],
)
def test_a_wrong_setting_is_named(environ, message):
    with pytest.raises(PluginError, match=message):
        read_settings(environ)


def test_fallback_routes_what_no_patch_replaces():
    assert patches("sm_90", DSV4_PATCHES="none", DSV4_FALLBACK="1") == FALLBACK_PATCHES
    assert patches("sm_90", DSV4_FALLBACK="1") == FALLBACK_PATCHES
    assert patches("sm_90", DSV4_PATCHES="indexer", DSV4_FALLBACK="1") == ("indexer", "fallback_sparse_mla")


@pytest.mark.parametrize("raw", ["", "0", "none"])
def test_no_fallback_is_the_default(raw):
    assert patches("sm_90", DSV4_PATCHES="topk", DSV4_FALLBACK=raw) == ("topk",)


def test_fallbacks_can_be_listed_with_their_short_names():
    got = patches("sm_90", DSV4_PATCHES="topk", DSV4_FALLBACK="indexer, fallback_sparse_mla")
    assert got == ("topk", *FALLBACK_PATCHES)


def test_the_prewarm_is_applied_only_where_it_is_asked_for():
    assert "prewarm" not in patches("sm_90")
    assert patches("sm_90", DSV4_PATCHES="prewarm") == ("prewarm",)


DEFAULTS = {
    "SGLANG_OPT_USE_TILELANG_INDEXER": False,
    "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": False,
    "SGLANG_TOPK_TRANSFORM_512_TORCH": False,
    "SGLANG_OPT_FUSE_MHC_POST_PRE": False,
    "SGLANG_OPT_USE_TILELANG_MHC_POST": True,
    "SGLANG_OPT_USE_TILELANG_MHC_PRE": True,
    "SGLANG_SM120_FLASHMLA_BACKEND": "flashinfer",
}


def switch(**changes):
    return {**DEFAULTS, **changes}.__getitem__


def test_the_fused_hyper_connection_of_newer_releases_is_refused_with_the_switch_that_undoes_it():
    assert "SGLANG_OPT_FUSE_MHC_POST_PRE=0" in conflicts(
        "hc_prenorm", "sm_90", switch(SGLANG_OPT_FUSE_MHC_POST_PRE=True)
    )
    fused_without_pre = switch(SGLANG_OPT_FUSE_MHC_POST_PRE=True, SGLANG_OPT_USE_TILELANG_MHC_PRE=False)
    assert conflicts("hc_prenorm", "sm_90", fused_without_pre) == ""
    assert "FUSE" in conflicts("hc_prenorm", "sm_120", fused_without_pre)


@pytest.mark.field_case("R08", "R15")
def test_a_switch_that_sends_the_top_k_through_torch_is_refused():
    assert "SGLANG_TOPK_TRANSFORM_512_TORCH" in conflicts("topk", "sm_90", switch(SGLANG_TOPK_TRANSFORM_512_TORCH=True))
    assert conflicts("topk", "sm_90", switch()) == ""


def test_a_fallback_that_sglangs_switches_would_go_round_is_refused():
    assert "SGLANG_SM120_FLASHMLA_BACKEND=triton" in conflicts("fallback_sparse_mla", "sm_90", switch())
    assert conflicts("fallback_sparse_mla", "sm_90", switch(SGLANG_SM120_FLASHMLA_BACKEND="triton")) == ""
    assert "TORCH=1" in conflicts("fallback_indexer", "sm_90", switch())
    torch_on = switch(SGLANG_FP8_PAGED_MQA_LOGITS_TORCH=True)
    assert conflicts("fallback_indexer", "sm_90", torch_on) == ""


@pytest.mark.parametrize(
    ("version", "arch", "changes", "target"),
    [
        ("0.5.15.post1", "sm_90", {}, "deep_gemm.fp8_paged_mqa_logits"),
        ("0.5.23", "sm_90", {}, "deep_gemm.fp8_paged_mqa_logits"),
        ("0.5.15.post1", "sm_90", {"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": True}, "indexer.fp8_paged_mqa_logits_torch"),
        (
            "0.5.15.post1",
            "sm_120",
            {"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": True},
            "indexer.fp8_paged_mqa_logits_torch_sm120",
        ),
        (
            "0.5.23",
            "sm_120",
            {"SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": True, "SGLANG_OPT_USE_TILELANG_INDEXER": True},
            "sglang.kernels.ops.attention.dsa.tilelang_kernel.tilelang_fp8_paged_mqa_logits",
        ),
    ],
)
def test_the_indexer_is_hooked_where_sglangs_switches_lead(version, arch, changes, target):
    (seam,) = plugin.reached_seams("indexer", version, arch, switch(**changes))
    assert seam.target.endswith(target)


def test_both_versions_of_the_top_k_are_hooked():
    names = [s.qualname for s in plugin.reached_seams("topk", "0.5.23", "sm_90", switch())]
    assert names == ["topk_transform_paged", "topk_transform_paged_v2"]


def test_a_release_that_was_not_read_is_refused(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.5.24")
    with pytest.raises(PluginError, match=r"0\.5\.24.*seams.py"):
        plugin.sglang_version()


def test_a_seam_that_is_gone_stops_the_launcher_with_its_name(monkeypatch, capsys):
    monkeypatch.setattr(plugin, "card_arch", lambda: "sm_90")
    monkeypatch.setattr(plugin, "installed_source", lambda module: "")
    monkeypatch.setenv("DSV4_PATCHES", "hc_prenorm")
    with pytest.raises(SystemExit) as stopped:
        register()
    assert stopped.value.code == 1
    printed = capsys.readouterr().err
    assert "refusing to start" in printed
    assert "DeepseekV4DecoderLayer.hc_pre is not defined" in printed


def test_a_patch_without_a_seam_on_this_release_and_card_stops_the_launcher_already(monkeypatch):
    monkeypatch.setattr(plugin, "seams_for", lambda *asked: ())
    with pytest.raises(PluginError, match=r"topk.*0\.5\.16.*sm_90.*seams\.py"):
        plugin.require_seams(("topk",), "0.5.16", "sm_90")


def test_any_other_failure_of_the_plug_in_stops_the_server_too(monkeypatch, capsys):
    def broken(environ):
        raise KeyError("unforeseen")

    monkeypatch.setattr(plugin, "run", broken)
    with pytest.raises(SystemExit):
        register()
    assert "refusing to start: KeyError" in capsys.readouterr().err


def test_a_launcher_registers_no_hook_and_imports_no_model(monkeypatch):
    monkeypatch.setattr(plugin, "card_arch", lambda: "sm_90")
    monkeypatch.setattr(plugin, "sglang_switch", switch())
    monkeypatch.setattr(plugin, "hook", lambda *args: pytest.fail("a launcher must not hook"))
    plugin.run({"DSV4_PATCHES": "sparse_mla,topk"})


@pytest.mark.parametrize(("child", "expected"), [(None, False), (object(), True)])
def test_the_model_runs_in_a_child_process(monkeypatch, child, expected):
    monkeypatch.setattr("multiprocessing.parent_process", lambda: child)
    assert plugin.runs_the_model() is expected


def test_a_detokenizer_runs_no_model(monkeypatch):
    monkeypatch.setattr("multiprocessing.parent_process", object)

    def run_detokenizer_process():
        return plugin.runs_the_model()

    assert run_detokenizer_process() is False


@pytest.mark.field_case("R13")
def test_a_default_patch_that_would_not_be_reached_is_left_out_aloud_and_an_explicit_one_refused(monkeypatch, capsys):
    monkeypatch.setattr(plugin, "sglang_switch", switch(SGLANG_OPT_FUSE_MHC_POST_PRE=True))
    kept = plugin._without_conflicts(Settings(), KERNEL_PATCHES, "sm_90")
    assert kept == ("sparse_mla", "indexer", "topk")
    assert "hc_prenorm left out" in capsys.readouterr().err
    with pytest.raises(PluginError, match="hc_prenorm"):
        plugin._without_conflicts(Settings(("hc_prenorm",)), ("hc_prenorm",), "sm_90")


def test_a_kernel_that_the_package_lacks_is_named(monkeypatch):
    monkeypatch.setitem(plugin.KERNELS, "sparse_mla", "no_such_kernel")
    (seam,) = plugin.reached_seams("sparse_mla", "0.5.15.post1", "sm_90", switch())
    with pytest.raises(PluginError, match="no_such_kernel"):
        plugin.build(seam, "0.5.15.post1", lambda patch, rows: None)


def test_each_fallback_calls_exactly_one_function_in_each_version():
    for version in ("0.5.15.post1", "0.5.16", "0.5.23"):
        for patch in (*FALLBACK_PATCHES, "hc_prenorm", "prewarm"):
            assert len([s for s in seams_for(version, (patch,)) if s.use == "call"]) == 1


def _load_plugins(**environ):
    """Run SGLang's own plug-in loader in a fresh process that finds our entry point."""
    code = (
        "import logging, sys; logging.basicConfig(level=logging.INFO);"
        "from sglang.srt.plugins import load_plugins; load_plugins(); print('server goes on')"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DSV4_")}
    clean["CUDA_VISIBLE_DEVICES"] = ""
    clean["PYTHONPATH"] = os.pathsep.join([environ.pop("entry_point"), str(REPOSITORY / "kernels")])
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=clean | environ, capture_output=True, text=True, timeout=120)


@pytest.fixture
def entry_point(tmp_path):
    script = REPOSITORY / "tools" / "gpu" / "make_entry_point.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=30)
    return str(tmp_path)


@pytest.mark.timeout(130)
def test_sglangs_own_loader_stops_on_a_patch_that_the_machine_cannot_run(entry_point):
    done = _load_plugins(entry_point=entry_point, DSV4_PATCHES="sparse_mla")
    assert done.returncode == 1
    assert "there is no CUDA device here" in done.stderr
    assert "server goes on" not in done.stdout


@pytest.mark.timeout(130)
def test_sglangs_own_loader_goes_on_where_nothing_was_asked_and_nothing_suits(entry_point):
    done = _load_plugins(entry_point=entry_point)
    assert done.returncode == 0, done.stderr
    assert "no patch suits this machine" in done.stderr
    assert "Failed to" not in done.stderr
    assert "server goes on" in done.stdout


@pytest.mark.parametrize(
    ("version", "method"), [("0.5.16", "_prewarm_mhc_pre_kernels"), ("0.5.17", "_prewarm_mhc_kernels")]
)
def test_the_prewarm_calls_the_method_by_the_name_that_the_version_has(version, method):
    (seam,) = plugin.reached_seams("prewarm", version, "sm_90", switch())
    called = []
    model = type("Model", (), {method: lambda self: called.append(method)})()
    plugin.build(seam, version, lambda patch, rows: None)(model)
    assert called == [method]
