"""Takes a profiler trace of one point on a live server, through SGLang's own endpoints (edge)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfgate.cpu_trace import read_cpu_trace
from perfgate.profile import Profile, ProfileError, Shares, read_trace
from perfgate.profiles import Profiles
from perfgate.redact import redact_text
from perfgate.sampler import Sampler, Show
from perfgate.server import http
from perfgate.workload import Plan

STOP_SECONDS = 180.0
"""The server answers ``/stop_profile`` once its trace is written, which takes longer than the profiled work."""

FILE_SECONDS = 30.0


def take(sampler: Sampler, plan: Plan, folder: Path, seed: int, show: Show) -> Profile:
    """Profile two waves of the point's own shapes and share out the time. Raises ProfileError with what went wrong.

    On a GPU the trace holds kernels alone: to record operators too would slow the CPU side, and with it the step. What the
    client measures meanwhile is thrown away.
    """
    device = sampler.recipe.device
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.rglob("*.json*"))
    order = {
        "output_dir": str(folder),
        "activities": ["CPU" if device == "cpu" else "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }
    show(f"C={plan.concurrency}: a profiler trace of the {device} time")
    load = dataclasses.replace(plan, num_prompts=2 * plan.concurrency, warmup_requests=0)
    try:
        http.post_json(f"{sampler.server.base_url}/start_profile", order, STOP_SECONDS)
        try:
            taken = sampler.take(load, seed, show)
        finally:
            http.post_json(f"{sampler.server.base_url}/stop_profile", {}, STOP_SECONDS)
    except http.ServerHttpError as error:
        raise ProfileError(f"the server took no trace: {error}") from None
    if taken.failure is not None:
        raise ProfileError(f"the work to be profiled failed: {taken.failure.message}")
    (path, *others) = _written(folder, before)
    found = (read_cpu_trace if device == "cpu" else read_trace)(path)
    if others:
        show(f"C={plan.concurrency}: {len(others)} more ranks left traces in {folder.name}; {path.name} is shown")
    return found


def look(
    now: Sampler | None,
    before: Sampler | Mapping[int, Shares],
    plans: Mapping[int, Plan],
    points: Sequence[int],
    folder: Path,
    show: Show,
) -> Profiles:
    """Profile ``points`` on the server ``now``, and on ``before`` where that is a live server and not shares on record.

    Never raises for what the servers do: a point without a profile gets the reason.
    """
    found = Profiles()
    for concurrency in points:
        try:
            if now is None:
                raise ProfileError("the server is gone")
            place = folder / f"c{concurrency}"
            found.now[concurrency] = take(now, plans[concurrency], place, concurrency, show).shares
            if isinstance(before, Sampler):
                old = take(before, plans[concurrency], place / "against", concurrency, show).shares
                found.before[concurrency] = old
            elif concurrency in before:
                found.before[concurrency] = before[concurrency]
        except ProfileError as error:
            found.failed[concurrency] = redact_text(str(error))
    return found


def _written(folder: Path, before: set[Path]) -> list[Path]:
    deadline = time.monotonic() + FILE_SECONDS
    while time.monotonic() < deadline:
        found = sorted(set(folder.rglob("*.json*")) - before)
        if found:
            return found
        time.sleep(0.2)
    raise ProfileError(f"the server said that it stopped profiling and left no trace in {folder}")
