"""Processes that know nothing of each other compute the same, bit for bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dsv4_kernels
import pytest
import torch
from kit import digest

LAUNCHES = 10 if torch.cuda.is_available() else 2


@pytest.mark.field_case("K34")
def test_fresh_processes_agree_bitwise_with_this_one(device: torch.device) -> None:
    """A fault that is drawn once a process never shows among the launches of one."""
    expected = digest.digests(device)
    paths = [str(Path(dsv4_kernels.__file__).parent.parent), str(Path(digest.__file__).parent.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    for launch in range(LAUNCHES):
        # Another order of hashes, and memory that earlier work has left in another state.
        environment["PYTHONHASHSEED"] = str(launch)
        command = [sys.executable, digest.__file__, str(device)]
        child = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert child.returncode == 0, child.stderr[-2000:]
        assert json.loads(child.stdout.splitlines()[-1]) == expected, f"fresh process {launch + 1} differs"
