"""SGLang wheels of exact versions, downloaded once and read as archives: nothing in them is installed or imported."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dsv4-perfgate" / "wheels"


def wheel(version: str) -> Path:
    """Path of SGLang's wheel of ``version``; downloaded with pip where it is not cached. Fails where that fails."""
    folder = cache_folder() / version
    found = sorted(folder.glob(f"sglang-{version}-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", str(folder)]
        done = subprocess.run([*command, f"sglang=={version}"], capture_output=True, text=True, timeout=300)
        found = sorted(folder.glob(f"sglang-{version}-*.whl"))
        if done.returncode or not found:
            raise AssertionError(
                f"the seams cannot be checked: pip could not download sglang=={version} (network or index down?); "
                f"put the wheel into {folder} by hand. pip said: {done.stderr.strip()[-600:]}"
            )
    return found[0]


class WheelSource:
    """Gives the source of a module in a wheel by its dotted name, or None where the wheel does not hold it."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path)
        self._names = frozenset(self._archive.namelist())

    def __call__(self, module: str) -> str | None:
        base = module.replace(".", "/")
        for name in (f"{base}.py", f"{base}/__init__.py"):
            if name in self._names:
                return self._archive.read(name).decode("utf-8")
        return None

    def modules_under(self, package: str) -> list[str]:
        """Dotted names of the modules right inside a package."""
        base = package.replace(".", "/") + "/"
        found = (n for n in self._names if n.startswith(base) and n.endswith(".py") and "/" not in n[len(base) :])
        return sorted(name.removesuffix(".py").replace("/", ".") for name in found)
