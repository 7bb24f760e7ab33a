"""The order of a run's first steps: who waits for the client's imports."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfgate.runs import Run


@pytest.mark.parametrize(("gpu", "steps"), [(False, ["client", "server"]), (True, ["server"])])
def test_a_server_on_a_gpu_starts_while_the_client_is_imported(gpu: bool, steps: list[str]) -> None:
    done: list[str] = []
    run = Run.__new__(Run)
    run.gpus = SimpleNamespace(needed=gpu)  # type: ignore[assignment]
    run.client = SimpleNamespace(wait_ready=lambda: done.append("client"))  # type: ignore[assignment]
    run.guarded(SimpleNamespace(), lambda: done.append("server"))  # type: ignore[arg-type]
    assert done == steps
