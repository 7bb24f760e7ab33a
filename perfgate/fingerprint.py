"""What makes two results comparable: hardware, software and resolved server arguments (edge)."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from perfgate import backends, environment, redact
from perfgate.baseline.differences import RECIPE
from perfgate.recipe import Recipe

PACKAGES = (
    "sglang",
    "torch",
    "triton",
    "transformers",
    "sgl-kernel",
    "sglang-kernel",
    "sgl-deep-gemm",
    "flashinfer-python",
)
"""Installed versions that can change a server's speed."""

VOLATILE = frozenset(
    [
        "model_path",
        "tokenizer_path",
        "served_model_name",
        "host",
        "port",
        "nccl_port",
        "dist_init_addr",
        "random_seed",
        "startup_time",
        "launch_command",
        "internal_states",
        "version",
        "status",
        "frontend",
        "max_req_input_len",
        "max_total_num_tokens",
        "last_gen_throughput",
        "gc_threshold",
        "forward_pass_metrics_ipc_name",
        "forward_pass_metrics_worker_id",
        "engine_info_bootstrap_port",
        "log_level",
        "log_level_http",
        "disaggregation_bootstrap_port",
        "crash_dump_folder",
        "download_dir",
        "weight_version",
        "file_storage_path",
    ]
)
"""Keys of ``/server_info`` that differ from start to start or say nothing about speed."""

CAPACITY = frozenset(
    {"max_running_requests", "max_queued_requests", "max_prefill_bs", "effective_max_running_requests_per_dp"}
)
"""Limits on how much runs at once. What they do to a point is measured at that point, so they do not make results
incomparable: a limit that cuts into C=64 has to show as a failure there, and leave C=1 comparable."""


def collect(
    info: Mapping[str, Any],
    gpus: list[dict[str, Any]] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    start_log: str = "",
    recipe: Recipe | None = None,
) -> dict[str, Any]:
    """The fingerprint of a server that runs on this host: ``hardware``, ``software``, ``server`` (no secrets, no paths).

    With ``environ``, the environment that it was started in, and ``start_log`` also ``environment`` and ``backends``:
    what it was told past its arguments, and what it chose by itself. With a ``recipe`` also what that asks.
    """
    hardware: dict[str, Any] = {"cpu": cpu_model(), "cpus": psutil.cpu_count() or 0}
    if not gpus:
        # Beside a GPU the host's memory bounds nothing, and a virtual machine's can grow as it is used: its own earlier
        # starts would then count as another machine's.
        hardware["memory_gib"] = round(psutil.virtual_memory().total / 2**30)
    else:
        hardware["gpus"] = len(gpus)
        for key in gpus[0]:
            values = [gpu.get(key) for gpu in gpus]
            hardware[f"gpu_{key}"] = values[0] if len({repr(v) for v in values}) == 1 else values
    software: dict[str, Any] = {"python": platform.python_version(), "os": platform.system()}
    for name in PACKAGES:
        try:
            software[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if info.get("version"):
        software["sglang"] = str(info["version"])
    found = {"hardware": hardware, "software": software, "server": server_arguments(info)}
    chosen = {"environment": environment.relevant(environ or {}), "backends": backends.chosen(start_log)}
    asks = {} if recipe is None else {RECIPE: asked(recipe)}
    return found | asks | {name: value for name, value in chosen.items() if value}


def asked(recipe: Recipe) -> dict[str, Any]:
    """What a recipe measures: its model, lengths in tokens, least seconds and prompts a sample by point. How many samples are
    taken, within what limits, and what is made of them is not part of it; its server's arguments are under ``server``."""
    model, work = recipe.model, recipe.workload
    return {
        "model": {"path": model.path.name}
        if model.path
        else {"generator": model.generator, "options": dict(model.options)},
        "input_len": work.input_len,
        "output_len": work.output_len,
        "min_seconds": work.min_seconds,
        "prompts": {str(c): recipe.plan(c).num_prompts for c in recipe.concurrencies},
    }


def server_arguments(info: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved arguments that a result depends on, redacted; unset ones are left out."""
    kept = {k: v for k, v in info.items() if k not in VOLATILE | CAPACITY and _is_plain(v) and v not in (None, "", [])}
    return dict(sorted(redact.redact(kept).items()))


def hardware_name(fingerprint: Mapping[str, Any]) -> str:
    """The file name of a baseline on this hardware: ``1x-nvidia-h200`` or ``cpu-amd-epyc-2c``."""
    hardware = fingerprint["hardware"]
    if hardware.get("gpus"):
        model = hardware.get("gpu_name", "gpu")
        return f"{hardware['gpus']}x-{_slug(model if isinstance(model, str) else 'mixed')}"
    return f"cpu-{_slug(str(hardware['cpu']))}-{hardware['cpus']}c"


def cpu_model() -> str:
    """The processor's name as Linux tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def git_commit(folder: Path) -> str | None:
    """The commit of a checkout, with ``-dirty`` where tracked files differ from it.

    Outside a checkout, or without git, what ``$PERFGATE_COMMIT`` says: a host that a copy was carried to cannot know.
    None where neither tells.
    """
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        found = done.stdout.strip() if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        found = ""
    return found or os.environ.get("PERFGATE_COMMIT") or None


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= 128 and all(isinstance(v, str | int | float | bool) for v in value)
    return isinstance(value, str | int | float | bool)


def _slug(text: str) -> str:
    text = re.sub(r"\((r|tm)\)|processor|cpu|\d+-core", " ", text.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "unknown"
