"""The servers of an evaluation: one recipe, some of them slowed by the plug-in (edge)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from perfgate.recipe import Recipe

HERE = Path(__file__).parent


def plugin_site(folder: Path) -> Path:
    """A folder for PYTHONPATH in which SGLang finds the slow-down plug-in as if it were installed."""
    info = folder / "perfgate_slowdown-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "slowdown.py", folder / "perfgate_slowdown.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: perfgate-slowdown\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nperfgate_slowdown = perfgate_slowdown:register\n")
    return folder


def slowed(recipe: Recipe, how: str | None, site: Path) -> Recipe:
    """``recipe`` slowed as ``how`` says (see slowdown.py), or itself. Both kinds load the plug-in: one change apart."""
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    env = {**recipe.server.env, "PYTHONPATH": path} | ({"PERFGATE_SLOWDOWN": how} if how else {})
    return with_server(recipe, env=env)


def with_server(recipe: Recipe, env: Mapping[str, str] | None = None, **args: object) -> Recipe:
    """``recipe`` with another environment and some server arguments replaced."""
    server = recipe.server
    update = {"env": dict(env or server.env), "args": {**server.args, **args}}
    return recipe.model_copy(update={"server": server.model_copy(update=update)})
