#!/usr/bin/env python3
"""Make this checkout's entry points visible on a machine where it cannot be installed (no network, no pip).

    python3 tools/gpu/make_entry_point.py DIR

writes DIR/dsv4_perfgate-VERSION.dist-info with what pyproject.toml says. With DIR on PYTHONPATH, beside the checkout
and its kernels/ folder, importlib.metadata finds the entry points as if the distribution were installed.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def make_entry_point(folder: Path, pyproject: Path) -> Path:
    """Write the metadata folder and return its path. Raises OSError, tomllib.TOMLDecodeError or KeyError."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = dict(project.get("entry-points", {}))
    if "scripts" in project:
        groups["console_scripts"] = project["scripts"]
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (info / "INSTALLER").write_text("make_entry_point\n", encoding="utf-8")
    return info


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(make_entry_point(Path(sys.argv[1]), Path(__file__).resolve().parents[2] / "pyproject.toml"))
