"""The SGLang plug-in: puts this project's kernels in SGLang's place, or stops the server with the reason.

Entry point of the group ``sglang.srt.plugins``. What it does is set by DSV4_PATCHES (comma-separated; unset: all that
suit the card; empty or ``none``: none), DSV4_FALLBACK and DSV4_COUNTS_FILE.
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv4_kernels.sglang_plugin.resolve import SeamStatus


def register() -> None:
    """Apply what DSV4_PATCHES asks for. Raises SystemExit(1), the reason on stderr, where that cannot be done.

    SGLang logs any other exception of a plug-in and comes up unpatched (srt/plugins/__init__.py:117); SystemExit is
    the one that stops it, so everything that goes wrong in here becomes one.
    """
    import sys

    try:
        from dsv4_kernels.sglang_plugin.plugin import run
        from dsv4_kernels.sglang_plugin.settings import PluginError
    except Exception:
        traceback.print_exc()
        print("[dsv4_kernels] refusing to start: the plug-in cannot be imported", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    try:
        run(os.environ)
    except PluginError as error:
        print(f"[dsv4_kernels] refusing to start: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None
    except Exception as error:
        traceback.print_exc()
        print(f"[dsv4_kernels] refusing to start: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


def check_seams(arch: str | None = None) -> list[SeamStatus]:
    """Every seam of the installed SGLang against what is there; see :func:`.plugin.check_seams`."""
    from dsv4_kernels.sglang_plugin.plugin import check_seams as check

    return check(arch)


__all__ = ["check_seams", "register"]
