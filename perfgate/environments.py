"""The two environments of ``--against-commit``: each side's kernels built and installed into a folder of its own (edge).

The new side is copied out too, and not run from the checkout: the files of a checkout may be edited during the run, and
both sides are to load their modules in the same way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType

from perfgate import paths
from perfgate.revision import Commit, RevisionError, export_working_tree
from perfgate.sampler import Show
from perfgate.server import ServerError

BUILD_SECONDS = 300
PLUGINS = "sglang.srt.plugins"

_PROBE = f"""
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("dsv4_kernels")
plugins = {{e.name: e.value for e in importlib.metadata.entry_points(group={PLUGINS!r})}}
print(json.dumps([spec.origin if spec else None, plugins]))
"""


class Environments:
    """Builds both sides on first use. A context: what it wrote goes when it ends. Hold the host's measuring lock."""

    def __init__(self, commit: Commit, show: Show) -> None:
        self._commit, self._show = commit, show
        self._base = paths.cache_dir() / "against"
        self._folder = self._base / str(os.getpid())
        self._built = False

    def __enter__(self) -> Environments:
        # Whoever else wrote here is gone: one run at a time measures on a host.
        shutil.rmtree(self._base, ignore_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._base, ignore_errors=True)

    def old(self) -> Path:
        """The folder to put on the path of the commit's server. Raises ServerError."""
        self._build()
        return self._folder / "old"

    def new(self) -> Path:
        """The folder to put on the path of this checkout's server. Raises ServerError."""
        self._build()
        return self._folder / "new"

    def _build(self) -> None:
        if self._built:
            return
        self._side("old", f"commit {self._commit.short}", self._commit.export)
        self._side("new", "this checkout", lambda folder: export_working_tree(self._commit.root, folder))
        self._built = True

    def _side(self, side: str, what: str, export: Callable[[Path], None]) -> None:
        self._show(f"building the kernels of {what}")
        source, target = self._folder / f"{side}-source", self._folder / side
        for folder in (source, target):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            export(source)
        except (RevisionError, OSError) as error:
            raise ServerError(f"the files of {what} could not be written out: {error}") from None
        install(source, target, what)


def install(source: Path, target: Path, what: str) -> None:
    """Build the distribution at ``source`` and install it, without its requirements, into ``target``. Raises ServerError."""
    # Isolated from the user's pip settings, and from any network: whatever a build needs is here or is missing.
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(target), str(source)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ServerError(f"the kernels of {what} were not built within {BUILD_SECONDS} s") from None
    if done.returncode:
        said = " | ".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise ServerError(
            f"the kernels of {what} could not be built; it takes pip and setuptools>=77 beside this Python, and pip ended with "
            f"exit code {done.returncode}: {said}"
        )


def on_path(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """``PYTHONPATH`` with ``folder`` before what ``environment`` has there."""
    there = environment.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(folder), *([there] if there else [])])}


def prove(folder: Path, environment: Mapping[str, str]) -> None:
    """Ask a process with the server's ``environment`` which kernels and plug-in it would load. Raises ServerError where
    they are not those of ``folder``: the server would be measured under a wrong name."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False, env=dict(environment)
    )
    try:
        origin, plugins = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise ServerError(f"which kernels a server would load cannot be told: {done.stderr.strip()[-500:]}") from None
    if origin is None or not Path(origin).resolve().is_relative_to(folder.resolve()):
        raise ServerError(f"a server would load the kernels of {origin}, not those built for it in {folder}")
    built = {
        e.name: e.value
        for d in metadata.distributions(path=[str(folder)])
        for e in d.entry_points.select(group=PLUGINS)
    }
    if missing := {name: value for name, value in built.items() if plugins.get(name) != value}:
        raise ServerError(f"a server would not load the plug-in {missing} built for it in {folder}, but {plugins}")
