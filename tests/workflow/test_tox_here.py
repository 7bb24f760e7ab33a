"""The stand-in for tox runs the commands that tox.ini holds, and no others."""

import sys

import pytest
from tox_here import commands

INI = """
[testenv]
commands = python -m pytest -m {env_name} {posargs}
[testenv:{perf,correctness}]
[testenv:gpu-{perf,correctness}]
commands =
    perf: python -m pytest -m perf {posargs}
    correctness: python -m pytest -m correctness
[testenv:odd]
commands = python {tox_root}/x.py
"""


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("perf", ["--recipe", "a b"], ["-m", "pytest", "-m", "perf", "--recipe", "a b"]),
        ("correctness", [], ["-m", "pytest", "-m", "correctness"]),
        ("gpu-perf", ["-x"], ["-m", "pytest", "-m", "perf", "-x"]),
        ("gpu-correctness", [], ["-m", "pytest", "-m", "correctness"]),
    ],
)
def test_an_environment_gives_its_own_commands(tmp_path, name, arguments, words):
    (tmp_path / "tox.ini").write_text(INI)
    assert commands(tmp_path / "tox.ini", name, arguments) == [[sys.executable, *words]]


@pytest.mark.parametrize(("name", "said"), [("nightly", "no environment"), ("odd", "cannot fill in")])
def test_what_it_cannot_run_as_tox_would_is_refused(tmp_path, name, said):
    (tmp_path / "tox.ini").write_text(INI)
    with pytest.raises(SystemExit, match=said):
        commands(tmp_path / "tox.ini", name, [])
