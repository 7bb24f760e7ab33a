"""Headless Chromium, as a reader's browser: what it made of a page, and what it complained about."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

INSTALL = "apt-get update && apt-get install -y chromium"

_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--log-level=0",
)


@dataclass(frozen=True)
class Seen:
    """What came of one visit: the page as the browser built it, or a picture, and its console's lines."""

    dom: str
    console: tuple[str, ...]


def chromium() -> str:
    """Chromium's path. Raises AssertionError, naming the command that installs it, where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, f"these tests need Chromium; install it with: {INSTALL}"
    return found


def visit(page: Path) -> Seen:
    """Load a page from disk and return its DOM and console lines."""
    done = _run(["--dump-dom", page.as_uri()])
    return Seen(done.stdout, tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line))


def picture(page: Path, to: Path, dark: bool, width: int = 1100, height: int = 1400) -> None:
    """Take a screenshot as a reader who prefers dark, or light, would see the page."""
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    _run([scheme, f"--window-size={width},{height}", f"--screenshot={to}", page.as_uri()])


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="chromium-") as home:
        command = [chromium(), *_QUIET, f"--user-data-dir={home}", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
