"""Parts of an installed package by their file, without importing the package: SGLang's own import takes 30 s and 60 packages."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def installed(package: str) -> bool:
    """Whether a package is there; it is not imported for it."""
    return importlib.util.find_spec(package) is not None


def _file_of(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported for it. Raises ImportError."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{package} is not installed")
    file = Path(next(iter(spec.submodule_search_locations)), path)
    if not file.is_file():
        raise ImportError(f"{package} has no {path}")
    return file


def function_of(package: str, path: str, name: str, known: dict[str, Any]) -> Callable[..., Any]:
    """A function by its file, without that file's imports: ``known`` is all that it finds of them. Raises ImportError."""
    file = _file_of(package, path)
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if len(found) != 1:
        raise ImportError(f"{package} has {len(found)} functions {name} in {path}, not one")
    # Annotations are not evaluated, as in the file itself: compile inherits that from this one.
    exec(compile(ast.Module(found, []), str(file), "exec"), known)
    return known[name]


@functools.cache
def module_file(package: str, path: str) -> ModuleType:
    """A module by its file, without importing the package around it. Raises ImportError."""
    file = _file_of(package, path)
    found = importlib.util.spec_from_file_location(f"kernelbench_{file.stem}", file)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
