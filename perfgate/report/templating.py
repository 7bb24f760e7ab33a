"""How every page is made of its template: nothing unescaped, no name that is not given."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment() -> Environment:
    """The templates of ``perfgate/report/templates``."""
    return Environment(
        loader=PackageLoader("perfgate.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
