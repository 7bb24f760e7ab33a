"""The server's command line and environment, from a recipe (pure)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfgate import jit_caches
from perfgate.recipe import Recipe

MARK = "PERFGATE_SERVER_ID"
"""Environment variable that every process of a started server inherits; it alone says which processes are ours."""


def argv(recipe: Recipe, model: Path, port: int, served_name: str) -> list[str]:
    """``python -m sglang.launch_server …`` with the recipe's flags."""
    command = [sys.executable, "-m", recipe.server.module, "--model-path", str(model)]
    command += ["--served-model-name", served_name, "--host", "127.0.0.1", "--port", str(port)]
    for name, value in recipe.server.args.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            command.append(flag)
        elif value is False:
            continue
        elif isinstance(value, list):
            command += [flag, *map(str, value)]
        else:
            command += [flag, str(value)]
    return command


def environment(recipe: Recipe, base: Mapping[str, str], server_id: str) -> dict[str, str]:
    """The caller's environment, the recipe's on top, and the mark. SGLANG_* of the caller do not leak in.

    Nor does TRITON_INTERPRET, which the tests around set where there is no GPU: a server's kernels are compiled. Nor do the
    caller's compile caches: a kernel that is compiled in a sample has to leave its file where the gate looks for it.
    """
    foreign = ("SGLANG_", "DSV4_", "SGL_", "TRITON_INTERPRET")
    kept = {k: v for k, v in base.items() if not k.startswith(foreign)}
    patches = {"DSV4_PATCHES": ",".join(recipe.patch.patches), "DSV4_FALLBACK": ",".join(recipe.patch.fallback)}
    caches = jit_caches.variables(recipe.server.jit_caches, base)
    always = {"PYTHONUNBUFFERED": "1", "TRITON_PRINT_AUTOTUNING": "1"}
    return {**kept, **always, **patches, **caches, **recipe.server.env, MARK: server_id}


def disagreements(recipe: Recipe, info: Mapping[str, Any], served_name: str) -> list[str]:
    """What ``/server_info`` says against what the recipe asked for; empty where they agree.

    Flags whose argument name in SGLang differs from the flag's are not in ``info`` and cannot be compared: they are left
    out here and caught by the command line that the server's own process shows.
    """
    found = []
    if info.get("served_model_name") != served_name:
        found.append(f"served_model_name is {info.get('served_model_name')!r}, expected {served_name!r}")
    if recipe.server.sglang is not None and info.get("version") not in (None, recipe.server.sglang):
        found.append(f"SGLang version is {info.get('version')!r}, the recipe is for {recipe.server.sglang!r}")
    for name, value in recipe.server.args.items():
        if name in info and not _same(value, info[name]):
            found.append(f"{name} is {info[name]!r}, the recipe asks for {value!r}")
    return found


def _same(asked: Any, got: Any) -> bool:
    if asked == got:
        return True
    if isinstance(asked, bool) or isinstance(got, bool):
        return False
    if isinstance(asked, str) and isinstance(got, list | dict):
        return True  # parsed by the server into another shape; compared by its command line instead
    return str(asked) == str(got)
