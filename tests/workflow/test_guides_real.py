"""The guides' commands for a machine without a GPU, run in their order in a fresh checkout, as a new user would."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from server import kit

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(3000)]


def blocks(guide: str, start: str, end: str | None = None) -> list[str]:
    """The shell blocks of one section of a guide."""
    text = (kit.ROOT / "docs" / guide).read_text(encoding="utf-8")
    section = text[text.index(start) : None if end is None else text.index(end)]
    return re.findall(r"```bash\n(.*?)```", section, re.DOTALL)


@pytest.fixture
def user(tmp_path):
    """Runs shell lines in a checkout of its own. tox is a stand-in that runs what tox.ini says with this interpreter."""
    work = kit.checkout(tmp_path / "work")
    binary = work / ".venv" / "bin"
    binary.mkdir(parents=True)
    stand_in = Path(__file__).parent / "tox_here.py"
    for folder in (binary, tmp_path):
        (folder / "tox").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" "$@"\n')
        (folder / "tox").chmod(0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")} | {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{work}:{work / 'kernels'}",
        "PERFGATE_CACHE": str(tmp_path / "cache"),
        "PERFGATE_LOCKS": str(tmp_path / "cache" / "locks"),
        **{
            f"GIT_{who}_{what}": f"{what.lower()}@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }

    def go(lines: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-ec", lines], cwd=work, env=env, capture_output=True, text=True, check=False, timeout=1500
        )
        return done.returncode, done.stdout + done.stderr

    go.work = work
    return go


def test_a_new_user_reaches_a_gated_change(user):
    first, change = blocks("runner.md", "## 1.", "## 2.")
    install, *rest = first.splitlines()
    assert install == "python3.11 -m venv .venv && .venv/bin/pip install -q tox tox-ignore-env-name-mismatch"
    code, said = user("\n".join(rest))
    assert code == 0, said
    assert "✓ cpu-tiny: runs, no baseline of this hardware" in said
    assert "✓ PASS cpu-tiny: 3 of 3 points at or above the floor" in said
    report = user.work / "perf-report" / "try"
    assert {"result.json", "summary.md", "report.html", "server-start1.log"} <= {p.name for p in report.iterdir()}

    (verdict,) = blocks("verdicts.md", "## Where it stands")
    assert user(verdict) == (0, "PASS\n")

    code, said = user(change)
    assert code == 1, said
    stored = json.loads((user.work / "perf-report" / "change" / "result.json").read_text(encoding="utf-8"))
    assert {p["concurrency"]: p["outcome"] for p in stored["points"]}[1] == "REGRESSION"


def test_a_recorded_machine_is_judged_by_its_own_baseline(user):
    (record,) = blocks("baselines.md", "## Record this machine", "## Tighten")
    code, said = user(record)
    assert code == 0, said
    assert "Record cpu-tiny on this machine" in kit.git(user.work, "log", "-1", "--format=%s")
    (file,) = (user.work / "baselines" / "cpu-tiny").glob("*.json")
    assert json.loads(file.read_text(encoding="utf-8"))["points"]["64"]["provenance"]["reason"]
    user("tox -e perf -- --recipe cpu-tiny --concurrency 1 --report perf-report/again")
    stored = json.loads((user.work / "perf-report" / "again" / "result.json").read_text(encoding="utf-8"))
    # Whatever a busy machine's noise makes of it, it is the baseline that judges now, and no floor for any machine.
    assert stored["judged_by"] == "baseline"
    assert stored["fingerprint_differences"] == []
