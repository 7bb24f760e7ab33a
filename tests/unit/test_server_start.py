"""A start that cannot come to anything is ended when its log says so, and not at its deadline."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfgate.campaign import start_failure
from perfgate.server import ServerError
from perfgate.server.lifecycle import _wait_ready

BIND = "[2026-11-30 09:42:38] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 44663): address already in use"
"""SGLang 0.5.15.post1 lives on after it."""


@pytest.mark.timeout(60)
@pytest.mark.field_case("C20")
def test_a_port_that_was_taken_during_the_start_ends_it_at_once_with_its_cause(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, "-c", f"import time; print({BIND!r}, flush=True); time.sleep(300)"], stdout=sink
        )
    began = time.monotonic()
    try:
        with pytest.raises(ServerError, match="somebody took the port") as error:
            _wait_ready(process, log, 300, lambda line: None)
    finally:
        process.kill()
        process.wait()
    assert time.monotonic() - began < 30
    found = start_failure(error.value)
    assert found.cause == "PORT_IN_USE"
    assert "44663" in found.evidence[0]
