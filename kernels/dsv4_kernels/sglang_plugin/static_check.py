"""Read a function's parameter names out of Python source, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters_in_source(source: str, qualname: str) -> tuple[str, ...] | None:
    """Parameter names of ``function`` or ``Class.method`` in ``source``, or None where it is not defined there.

    Definitions under a module-level ``if`` or ``try`` count; a ``*args`` or ``**kwargs`` keeps its stars. Where a
    name is defined more than once (one branch a platform) the first is taken.
    """
    scope: ast.AST = ast.parse(source)
    *classes, function = qualname.split(".")
    for name in classes:
        found = next((n for n in _definitions(scope) if isinstance(n, ast.ClassDef) and n.name == name), None)
        if found is None:
            return None
        scope = found
    for node in _definitions(scope):
        if isinstance(node, _Function) and node.name == function:
            return _parameters(node)
    return None


def imports_name(source: str, name: str) -> bool:
    """True where ``source`` binds ``name`` at module level by ``from ... import`` (under its own name)."""
    return any(
        isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names)
        for node in _definitions(ast.parse(source))
    )


def _definitions(scope: ast.AST) -> Iterator[ast.AST]:
    """What a module or class body defines itself, looking into if, else and try, but not into functions."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            yield from _definitions(node)
        else:
            yield node


def _parameters(function: _Function) -> tuple[str, ...]:
    args = function.args
    names = [a.arg for a in args.posonlyargs + args.args]
    if args.vararg:
        names.append(f"*{args.vararg.arg}")
    names += [a.arg for a in args.kwonlyargs]
    if args.kwarg:
        names.append(f"**{args.kwarg.arg}")
    return tuple(names)
