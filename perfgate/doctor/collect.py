"""Asks the machine (edge). Imports nothing outside the standard library until it has seen that it is there."""

from __future__ import annotations

import csv
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from perfgate import host_locks, jit_caches, paths
from perfgate.doctor.diagnosis import HARNESS
from perfgate.doctor.facts import Card, Facts, RecipeFact, Seam

_QUERY = "name,memory.total,driver_version,power.limit,clocks_event_reasons.active,uuid,compute_cap"
_HARMLESS = 0x1 | 0x2 | 0x4
"""Bits of NVML's clocks event reasons that say nothing against a measurement: idle, clocks set, software power cap."""


def collect(root: Path) -> Facts:
    """The facts of this machine and of the checkout at ``root``."""
    cards, card_error = _cards()
    packages = {name: _version(name) for name in (*HARNESS, "sglang", "torch", "triton")}
    seams, seam_error = _seams(packages, cards)
    lock_holder, lock_problem = _locks()
    return Facts(
        cpu=_cpu(),
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        disk_free_gib=shutil.disk_usage(root).free / 2**30,
        python=sys.version_info[:3],
        cards=cards,
        card_error=card_error,
        packages=packages,
        seams=seams,
        seam_error=seam_error,
        recipes=tuple(_recipe(path) for path in sorted((root / "recipes").glob("*.toml"))),
        hardware=_hardware(cards),
        baselines=frozenset(str(p.relative_to(root / "baselines")) for p in (root / "baselines").glob("*/*.json")),
        lock_holder=lock_holder,
        lock_problem=lock_problem,
        moved_caches=tuple(name for name in jit_caches.VARIABLES if os.environ.get(name)),
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()


def _cards() -> tuple[tuple[Card, ...], str]:
    if not shutil.which("nvidia-smi"):
        return (), "nvidia-smi is not on the path"
    rows, error = _smi(f"--query-gpu={_QUERY}")
    if error:
        return (), error
    busy, _ = _smi("--query-compute-apps=gpu_uuid,pid,process_name")
    return parse_cards(rows, busy), ""


def _smi(query: str) -> tuple[list[list[str]], str]:
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi: {error}"
    if done.returncode:
        return [], f"nvidia-smi: {(done.stdout or done.stderr).strip().splitlines()[:1]}"
    return [row for row in csv.reader(done.stdout.splitlines(), skipinitialspace=True) if row], ""


def parse_cards(rows: list[list[str]], busy: list[list[str]]) -> tuple[Card, ...]:
    """Cards from the rows of nvidia-smi's two queries (CSV without header and units; memory in MiB, power in W)."""
    cards = []
    for name, memory, driver, power, reasons, uuid, capability in rows:
        mask = int(reasons, 16) if reasons.startswith("0x") else 0
        cards.append(
            Card(
                name=name,
                memory_gib=float(memory) / 1024,
                driver=driver,
                arch=f"sm_{capability.replace('.', '')}",
                power_w=float(power) if re.fullmatch(r"[\d.]+", power) else None,
                throttled=f"clock event reasons {reasons}" if mask & ~_HARMLESS else "",
                processes=tuple(f"{row[1]} {row[2]}" for row in busy if len(row) >= 3 and row[0] == uuid),
            )
        )
    return tuple(cards)


def _seams(packages: dict[str, str | None], cards: tuple[Card, ...]) -> tuple[tuple[Seam, ...], str]:
    if not packages["sglang"]:
        return (), "sglang is not installed"
    try:
        plugin = importlib.import_module("dsv4_kernels.sglang_plugin")
        found = plugin.check_seams(cards[0].arch if cards else None)
    # The check reads someone else's sources: whatever stops it is what the reader needs to see.
    except (ImportError, AttributeError, RuntimeError, ValueError, OSError) as error:
        return (), f"{type(error).__name__}: {error}"
    return tuple(dict.fromkeys(Seam(_seam_name(status.seam), status.problem) for status in found)), ""


def _seam_name(seam: Any) -> str:
    return f"{seam.module}.{seam.qualname}"


def _recipe(path: Path) -> RecipeFact:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        model, server = data["model"], data.get("server", {})
        where = model.get("path")
        fact = RecipeFact(
            name=path.stem,
            device=data["device"],
            gpus=int(server.get("args", {}).get("tp_size", 1)),
            model_path=where,
            model_there=where is None or (Path(where).expanduser() / "config.json").is_file(),
            patches=tuple(data.get("patch", {}).get("patches", [])),
        )
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return RecipeFact(path.stem, error=f"{type(error).__name__}: {error}")
    return RecipeFact(path.stem, error=problem) if (problem := _full_check(path)) else fact


def _full_check(path: Path) -> str:
    """What the suite's own reader says, where its packages are installed."""
    try:
        recipe = importlib.import_module("perfgate.recipe")
    except ImportError:
        return ""
    try:
        recipe.load(path)
    except ValueError as error:
        return str(error).removeprefix(f"{path}: ")
    return ""


def _hardware(cards: tuple[Card, ...]) -> str | None:
    try:
        fingerprint = importlib.import_module("perfgate.fingerprint")
    except ImportError:
        return None
    names = {card.name for card in cards}
    hardware: dict[str, Any] = {"cpu": _cpu(), "cpus": os.cpu_count()}
    if cards:
        hardware |= {"gpus": len(cards), "gpu_name": names.pop() if len(names) == 1 else sorted(names)}
    return str(fingerprint.hardware_name({"hardware": hardware}))


def _locks() -> tuple[str, str]:
    """The measuring lock that is held, and why locks cannot be kept; each empty where there is nothing to say."""
    try:
        both = (paths.measure_lock(), host_locks.folder(make=False) / paths.MEASURE_LOCK)
        return next((str(path) for path in both if host_locks.is_held(path)), ""), ""
    except host_locks.LockError as error:
        return "", str(error)
