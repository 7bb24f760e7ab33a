"""The GPU recipes: flags that SGLang knows, patches that exist, and states that the plug-in does not refuse."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dsv4_kernels.sglang_plugin.settings import choose_patches, read_settings
from dsv4_kernels.sglang_plugin.switches import conflicts
from sglang_wheels import WheelSource, wheel

RECIPES = Path(__file__).parents[2] / "recipes"
GPU_RECIPES = sorted(RECIPES.glob("v4*.toml"))
DEFAULTS = {
    "SGLANG_OPT_USE_TILELANG_INDEXER": "0",
    "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "0",
    "SGLANG_TOPK_TRANSFORM_512_TORCH": "0",
    "SGLANG_OPT_FUSE_MHC_POST_PRE": "1",
    "SGLANG_OPT_USE_TILELANG_MHC_POST": "1",
    "SGLANG_OPT_USE_TILELANG_MHC_PRE": "1",
    "SGLANG_SM120_FLASHMLA_BACKEND": "flashinfer",
}
"""0.5.23's, the stricter of the two."""


@pytest.fixture(params=GPU_RECIPES, ids=lambda path: path.stem)
def recipe(request):
    return tomllib.loads(request.param.read_text()) | {"file": request.param.stem}


def test_there_are_recipes_for_every_state_and_both_context_lengths():
    names = {path.stem for path in GPU_RECIPES}
    assert {f"v4mini-{state}{c}" for state in ("stock", "fallback", "patched") for c in ("", "-1m")} <= names
    assert {"v4-flash-nvfp4-tp8-rtxpro6000", "v4-flash-fp8-tp4-h200"} <= names


def test_a_recipe_bears_its_files_name(recipe):
    assert recipe["name"] == recipe["file"]


def test_the_plug_in_takes_the_recipes_patches_and_finds_nothing_that_goes_round_them(recipe):
    arch = "sm_120" if "rtxpro6000" in recipe["name"] else "sm_90"
    if recipe["name"] == "v4-flash-nvfp4-tp8-rtxpro6000-stock":
        assert "patch" not in recipe, "SGLang alone"
        return
    patch = recipe["patch"]
    environ = {"DSV4_PATCHES": ",".join(patch["patches"]), "DSV4_FALLBACK": ",".join(patch.get("fallback", []))}
    chosen = choose_patches(read_settings(environ), arch)
    switches = DEFAULTS | recipe["server"]["env"]

    def switch(name):
        value = switches[name]
        return value == "1" if value in ("0", "1") else value

    assert chosen, "a GPU recipe that patches nothing proves nothing"
    assert [conflicts(name, arch, switch) for name in chosen] == [""] * len(chosen)


LARGE_PREFILL = 11673
"""Rows above which 0.5.15.post1 prefills by FlashMLA whatever the switch says (dsv4/metadata.py:51)."""


def test_on_sm_120_no_release_prefills_with_a_kernel_that_has_no_build_for_the_card(recipe):
    """0.5.15.post1 prefills by FlashMLA, which refuses all but sm_90 and sm_100, on sm_120 too unless its switch is off
    (deepseek_v4_backend.py:1405); from 0.5.16 on it does not, and the switch means nothing there."""
    if "rtxpro6000" in recipe["name"]:
        assert recipe["server"]["env"]["SGLANG_OPT_FLASHMLA_SPARSE_PREFILL"] == "0"
        assert recipe["server"]["args"]["chunked_prefill_size"] <= LARGE_PREFILL


def test_each_step_adds_one_kernel_to_the_one_before_it():
    def kernels(name):
        patch = tomllib.loads((RECIPES / f"{name}.toml").read_text())["patch"]
        return set(patch["patches"]), set(patch.get("fallback", []))

    for suffix in ("", "-1m"):
        ladder = [f"v4mini-{s}{suffix}" for s in ("fallback", "step1", "step2", "step3", "patched")]
        for before, after in itertools.pairwise(ladder):
            assert len(kernels(after)[0] - kernels(before)[0]) == 1
            assert kernels(before)[0] <= kernels(after)[0]
        assert all(not (p & f) for p, f in map(kernels, ladder))


def argv(recipe) -> list[str]:
    command = ["--model-path", "/nowhere"]
    for name, value in recipe["server"]["args"].items():
        command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return command


PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(exit_on_error=False)
ServerArgs.add_cli_args(parser)
for line in sys.stdin:
    parsed = parser.parse_args(json.loads(line))
    print(json.dumps([parsed.context_length, parsed.cuda_graph_max_bs_decode]))
"""


@pytest.mark.timeout(290)
def test_sglangs_own_parser_takes_every_recipes_flags():
    """The parser of the installed SGLang; resolving the arguments further needs a GPU and a model."""
    recipes = [tomllib.loads(path.read_text()) for path in GPU_RECIPES]
    lines = "".join(json.dumps(argv(recipe)) + "\n" for recipe in recipes)
    env = os.environ | {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", PARSE]
    done = subprocess.run(command, input=lines, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    parsed = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = [[r["server"]["args"]["context_length"], r["server"]["args"]["cuda_graph_max_bs_decode"]] for r in recipes]
    assert parsed == wanted


NEWEST_FIELDS = "sglang.srt.arg_groups.fields"
"""Where 0.5.23 declares its server arguments, by group."""


@pytest.mark.timeout(330)
def test_the_newest_release_still_has_every_flag_and_switch_of_a_recipe(recipe):
    read = WheelSource(wheel("0.5.23"))
    arguments = "".join(read(module) or "" for module in read.modules_under(NEWEST_FIELDS))
    environ = read("sglang.srt.environ")
    for name in recipe["server"]["args"]:
        assert re.search(rf"^    {name}: ", arguments, re.MULTILINE), f"0.5.23 has no --{name.replace('_', '-')}"
    for name in recipe["server"]["env"]:
        if name.startswith("SGLANG_"):
            assert re.search(rf"^    {name} = ", environ, re.MULTILINE), f"0.5.23 has no {name}"
