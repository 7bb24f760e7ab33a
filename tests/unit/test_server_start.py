"""A start that cannot come to anything is ended when its log says so, and not at its deadline."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfgate import recipe
from perfgate.campaign import start_failure
from perfgate.server import ServerError, attach
from perfgate.server.lifecycle import _claim_port, _wait_ready

TINY = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")

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


@pytest.fixture
def port() -> int:
    """A port on which nothing listens, since it was given back."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_an_address_that_does_not_answer_is_not_called_a_server_that_did_not_start(scheme: str, port: int) -> None:
    with pytest.raises(ServerError) as error:
        attach(f"{scheme}127.0.0.1:{port}", TINY, None)
    found = start_failure(error.value)
    assert found.message.startswith(f"--server-url {scheme}127.0.0.1:{port}: ")
    assert found.message.endswith("is this its base address, as http://HOST:PORT?")
    assert "urlopen" not in found.message


def test_a_port_that_answers_already_has_its_cause_without_a_log() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServerError) as error:
            _claim_port(int(taken.getsockname()[1]))
    assert start_failure(error.value).cause == "PORT_IN_USE"
