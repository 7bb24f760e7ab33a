"""Compare a seam with what is installed: by reading source in a launcher, by import and signature where it is used."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_kernels.sglang_plugin.seams import Seam
from dsv4_kernels.sglang_plugin.static_check import imports_name, parameters_in_source


@dataclass(frozen=True)
class SeamStatus:
    """One seam against what is installed. ``problem`` is empty where it is present with the expected signature."""

    seam: Seam
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


def check_source(seam: Seam, read: Callable[[str], str | None]) -> SeamStatus:
    """Check a seam inside SGLang by its source alone. ``read(module)`` gives a module's source, or None if absent."""
    home = seam.defined_in or seam.module
    source = read(home)
    if source is None:
        return SeamStatus(seam, f"module {home} does not exist")
    found = parameters_in_source(source, seam.qualname)
    if found is None:
        return SeamStatus(seam, f"{seam.qualname} is not defined in {home}")
    if found != seam.parameters:
        return SeamStatus(seam, _difference(seam, found))
    if seam.defined_in:
        importer = read(seam.module)
        if importer is None:
            return SeamStatus(seam, f"module {seam.module} does not exist")
        if not imports_name(importer, seam.qualname):
            return SeamStatus(seam, f"{seam.module} no longer imports {seam.qualname} by name")
    return SeamStatus(seam)


def check_live(seam: Seam) -> SeamStatus:
    """Check a seam by importing its module (which imports SGLang's model code) and inspecting the function."""
    try:
        found = load(seam)
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        return SeamStatus(seam, f"cannot be resolved: {type(error).__name__}: {error}")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError) as error:
        return SeamStatus(seam, f"its signature cannot be read ({error}), so it cannot be compared")
    names = tuple(_PREFIX.get(p.kind, "") + p.name for p in signature.parameters.values())
    return SeamStatus(seam, "" if names == seam.parameters else _difference(seam, names))


def load(seam: Seam) -> Any:
    """Import the seam's module and return the function or method. Raises ImportError or AttributeError."""
    value: Any = importlib.import_module(seam.module)
    for name in seam.qualname.split("."):
        value = getattr(value, name)
    return value


def installed_source(module: str) -> str | None:
    """Source of an installed module found beside its top package, which is located but never imported."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder, *rest)
        for path in (base.with_suffix(".py") if rest else base / "__init__.py", base / "__init__.py"):
            if path.is_file():
                return path.read_text(encoding="utf-8")
    return None


_PREFIX: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _difference(seam: Seam, found: tuple[str, ...]) -> str:
    return f"expected ({', '.join(seam.parameters)}), found ({', '.join(found)})"
