"""The guides name only files, environments, options, labels and recipe keys that exist."""

import configparser
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ("runner", "verdicts", "recipes", "baselines", "fleet", "air-gapped")


def guide(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def environments() -> set[str]:
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(ROOT / "tox.ini", encoding="utf-8")
    found: set[str] = set()
    for section in ini.sections():
        names = section.removeprefix("testenv:")
        match = re.fullmatch(r"([\w-]*)\{([\w,\s-]+)\}([\w-]*)", names)
        found |= {match[1] + w.strip() + match[3] for w in match[2].split(",")} if match else {names}
    return found


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_to_files_that_exist(name):
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", guide(name)) if "://" not in link]
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


@pytest.mark.parametrize("name", GUIDES)
def test_tox_environments_exist(name):
    assert set(re.findall(r"tox -e ([\w-]+)", guide(name))) <= environments()


@pytest.mark.parametrize("name", GUIDES)
def test_recipes_named_in_commands_exist(name):
    asked = set(re.findall(r"--recipe ([a-z0-9][\w.-]+)", guide(name)))
    assert asked <= {path.stem for path in (ROOT / "recipes").glob("*.toml")}


@pytest.mark.parametrize("name", GUIDES)
def test_options_of_the_suite_exist(name, pytestconfig):
    known = {option for action in pytestconfig._parser._anonymous.options for option in action.names()}
    for group in pytestconfig._parser._groups:
        known |= {option for action in group.options for option in action.names()}
    lines = [
        line for line in guide(name).replace("\\\n", " ").splitlines() if re.search(r"(perf|pytest -m \w+) .*--", line)
    ]
    asked = {option for line in lines if "doctor" not in line for option in re.findall(r"(?<= )--[a-z][a-z-]+", line)}
    assert asked <= known


def test_every_key_of_a_recipe_is_in_the_guide():
    from perfgate.recipe import Recipe

    named = set(re.findall(r"[a-z_0-9]+", guide("recipes")))
    tables = [Recipe, *(t for f in Recipe.model_fields.values() for t in get_args(f.annotation) or (f.annotation,))]
    keys = {f.alias or k for t in tables for k, f in getattr(t, "model_fields", {}).items()}
    assert len(keys) > 60
    assert sorted(keys - named) == []


def test_the_recipe_of_the_guide_is_a_valid_one(tmp_path):
    from perfgate import recipe

    text = re.search(r"```toml\n(.*?)```", guide("recipes"), re.DOTALL)[1]
    (tmp_path / "cpu-tiny-short.toml").write_text(text, encoding="utf-8")
    assert recipe.load(tmp_path / "cpu-tiny-short.toml").concurrencies == [1, 16]


def test_every_part_of_a_baseline_file_has_its_row():
    from perfgate.baseline.schema import StoredPoint

    text = (ROOT / "baselines" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert rows == list(StoredPoint.model_fields)
    assert set(re.findall(r"tox -e ([\w-]+)", text)) <= environments()


def test_every_verdict_has_its_row():
    from perfgate.result import Outcome

    rows = re.findall(r"^\| ([A-Z_]+) \| (.) \|", guide("verdicts"), re.MULTILINE)
    from perfgate.report.words import GLYPHS

    assert dict(rows) == {str(outcome): GLYPHS[outcome] for outcome in Outcome}


def test_every_kind_of_problem_and_every_cause_has_its_row():
    from perfgate.diagnosis import Cause
    from perfgate.patch_proof import ProofProblem
    from perfgate.validity import ProblemKind

    cells = [row.split("|")[1] for row in guide("verdicts").splitlines() if row.startswith("|")]
    named = [name for cell in cells for name in re.findall(r"[A-Za-z_]+", cell)]
    proof = get_args(get_type_hints(ProofProblem)["kind"])
    wanted = [*(kind.value for kind in ProblemKind), *proof, *(c.name for c in Cause if c is not Cause.NONE)]
    assert len(wanted) > 60
    assert [name for name in wanted if named.count(name) != 1] == []


def test_all_ways_of_using_the_suite_share_their_installed_packages():
    """tox makes a folder anew for each environment's name, unless this runner is the one that does it."""
    ini = configparser.ConfigParser(interpolation=None)
    ini.read(ROOT / "tox.ini", encoding="utf-8")
    assert ini["testenv"]["runner"] == "ignore_env_name_mismatch"
    assert not [s for s in ini.sections() if s != "testenv" and "runner" in ini[s]]
    assert "tox-ignore-env-name-mismatch" in ini["tox"]["requires"]
    folders = {ini[s]["env_dir"] for s in ini.sections() if "env_dir" in ini[s]}
    assert folders == {"{tox_root}/.tox/cpu", "{tox_root}/.tox/gpu", "{[testenv:gpu]env_dir}"}


def test_the_labels_in_the_runner_guide_are_those_that_the_workflow_takes():
    workflow = (ROOT / ".github/workflows/perf-gate.yml").read_text(encoding="utf-8")
    for card in re.findall(r"`perf-gate:([\w-]+)`", guide("runner")):
        assert re.search(rf"^\s+{re.escape(card)}\) recipe=", workflow, re.MULTILINE)
