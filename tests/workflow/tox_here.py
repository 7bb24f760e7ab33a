"""Stands in for tox where its environment is already this interpreter's: runs what tox.ini says, and builds nothing.

``python tox_here.py -e ENV [-- ARGUMENTS]`` in the folder of tox.ini. What it does not understand is an error. With
$TOX_HERE_CORRECTNESS the environment ``correctness`` runs the share of its tests that these options choose.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path


def commands(ini: Path, name: str, arguments: list[str]) -> list[list[str]]:
    """The environment's command lines, filled in. Raises SystemExit where tox.ini has no such environment."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ini, encoding="utf-8")
    own = [section for section in parser.sections() if name in _names(section)]
    if not own:
        raise SystemExit(f"{ini} has no environment {name!r}")
    text = next((parser[s]["commands"] for s in [*own, "testenv"] if parser.has_option(s, "commands")), "")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [_fill(line, name, arguments) for line in lines if _applies(line, name)]


def _names(section: str) -> set[str]:
    """``testenv:gpu-{perf,correctness}`` stands for two environments."""
    head, _, pattern = section.partition(":")
    match = re.fullmatch(r"([\w-]*)\{([\w,\s-]+)\}([\w-]*)", pattern)
    if head != "testenv":
        return set()
    return {match[1] + word.strip() + match[3] for word in match[2].split(",")} if match else {pattern}


def _applies(line: str, name: str) -> bool:
    factor = re.match(r"\s*([a-z]+):\s", line)
    return not factor or factor[1] in name.split("-")


def _fill(line: str, name: str, arguments: list[str]) -> list[str]:
    line = re.sub(r"^\s*[a-z]+:\s", "", line).replace("{env_name}", name)
    words: list[str] = []
    for word in shlex.split(line):
        if word == "{posargs}":
            words += arguments
        elif "{" in word:
            raise SystemExit(f"cannot fill in {word!r} of tox.ini")
        else:
            words.append(sys.executable if word == "python" else word)
    return words


def main(argv: list[str]) -> int:
    if len(argv) < 2 or argv[0] != "-e" or argv[2:3] not in ([], ["--"]):
        raise SystemExit(f"usage: tox -e ENV [-- ARGUMENTS], got {argv}")
    share = shlex.split(os.environ.get("TOX_HERE_CORRECTNESS", "")) if argv[1] == "correctness" else []
    for command in commands(Path("tox.ini"), argv[1], argv[3:] + share):
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
