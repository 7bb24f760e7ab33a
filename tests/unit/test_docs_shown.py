"""Every shell line of the guides is run by a test, or the guide says that it was not and why it could not be."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("README", "docs/runner", "docs/verdicts", "docs/recipes", "docs/baselines", "docs/fleet", "docs/air-gapped")
SHOWN = tomllib.loads((Path(__file__).parents[1] / "docs_commands.toml").read_text(encoding="utf-8"))["command"]


def commands(guide: str) -> list[str]:
    """The guide's shell lines: of blocks marked bash, and of the README's first block; continued lines are one."""
    text = (ROOT / f"{guide}.md").read_text(encoding="utf-8")
    fence = r"```bash\n(.*?)```" if guide != "README" else r"\A.*?```\n(.*?)```"
    found = "".join(re.findall(fence, text, re.DOTALL)).replace("\\\n", " ")
    lines = (re.sub(r"\s{2,}#.*$", "", line) for line in found.splitlines())
    return [" ".join(line.split()) for line in lines if line.strip()]


@cache
def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("guide", GUIDES)
def test_every_line_has_its_entry_and_no_entry_is_left_over(guide: str) -> None:
    assert commands(guide) == [entry["line"] for entry in SHOWN if entry["guide"] == guide]


@pytest.mark.parametrize("entry", SHOWN, ids=[f"{e['guide']}: {e['line'][:40]}" for e in SHOWN])
def test_a_line_is_run_by_a_test_that_exists_or_the_guide_says_that_it_was_not(entry: dict[str, str]) -> None:
    assert ("test" in entry) != ("not_run" in entry)
    if "test" in entry:
        file, _, name = entry["test"].partition("::")
        assert name in functions_of(ROOT / file) if name else (ROOT / file).is_file()
    else:
        text = " ".join((ROOT / f"{entry['guide']}.md").read_text(encoding="utf-8").split())
        assert entry["not_run"] in text


def test_the_air_gapped_host_gets_all_that_the_suite_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (download,) = (line for line in commands("docs/air-gapped") if line.startswith("pip download"))
    carried = set(re.findall(r'"([^"]+)"', download))
    assert carried == {*project["dependencies"], "setuptools>=77"}
