"""Counts of the A/B runs on real servers, as text and as a section of docs/evaluation.md (pure but for the files)."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from perfgate import marked

Row = dict[str, Any]


def read(folder: Path) -> list[Row]:
    """The runs counted in ``folder``, none where there is no such file."""
    if not (folder / "runs.jsonl").exists():
        return []
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def by_kind(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """Runs by kind and by how it was slowed, A/A first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda r: (r["kind"] != "A/A", r["kind"], r["how"])):
        found.setdefault((row["kind"], row["how"]), []).append(row)
    return found


def table(rows: list[Row]) -> str:
    lines = [
        "| new side | runs | REGRESSION | INCONCLUSIVE | PASS | IMPROVED | 95 % interval of the share called slower "
        "| step time, median of the runs | fit: cost of the step / per request / not told |",
        "|---|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    for (kind, how), runs in by_kind(rows).items():
        seen = Counter(r["outcome"] for r in runs)
        interval = binomtest(seen["REGRESSION"], len(runs)).proportion_ci(0.95)
        told = Counter(str(kind_told(r)) for r in runs)
        lines.append(
            f"| {name(kind, how)} | {len(runs)} | {seen['REGRESSION']} | {seen['INCONCLUSIVE']} | {seen['PASS']} "
            f"| {seen['IMPROVED']} | {interval.low:.0%} to {interval.high:.0%} | {changes(runs)} "
            f"| {told['False']} / {told['True']} / {told['None']} |"
        )
    return "\n".join(lines)


def name(kind: str, how: str) -> str:
    if kind == "A/A":
        return "the same (A/A)"
    what, _, amount = how.partition("=")
    if what == "share":
        return f"each decode step {float(amount):.0%} longer"
    return f"{float(amount):g} ms more a request in the running batch"


def kind_told(row: Row) -> bool | None:
    """Whether the fit told a cost per request (True) or of the step (False), as the gate says it: only where a point is
    slower or faster beyond doubt. Runs from before that rule have what the fit said of noise."""
    clear = {"REGRESSION", "IMPROVED"} & {row["outcome"], *row.get("points", {}).values()}
    told: bool | None = row["per_request"]
    return told if clear else None


def changes(runs: list[Row]) -> str:
    points = list(runs[0]["step_change"])
    middles = []
    for point in points:
        middle = statistics.median(r["step_change"][point] for r in runs)
        middles.append(f"C={point} {middle:+.1%}")
    return ", ".join(middles)


def wrong(rows: list[Row]) -> list[Row]:
    """Runs of unchanged code that raised an alarm, and slow-downs that raised none."""
    return [r for r in rows if r["alarm"] != (r["kind"] != "A/A")]


def summary(rows: list[Row]) -> str:
    """The table, and the runs that were wrong."""
    return "\n".join([table(rows), *(f"{r['kind']}: {r['outcome']}: {r['why']}" for r in wrong(rows))])


def put_into_page(page: Path, section: str, folder: Path) -> None:
    """Replace the table between ``<!-- SECTION -->`` and ``<!-- /SECTION -->``; raises ValueError where they are not."""
    rows = read(folder)
    if not rows:
        raise ValueError(f"{folder} holds no runs")
    began, ended = min(r["began"] for r in rows), max(r["began"] for r in rows)
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(t)) for t in (began, ended)})
    starts = len({r["began"] for r in rows})
    pairs = sorted({r["pairs"] for r in rows})
    taken = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else f"{pairs[0]}"
    thrown = sum({r["began"]: r.get("thrown_away", 0) for r in rows}.values())
    said = (
        f"Measured on {' to '.join(days)}: {len(rows)} A/B runs on {starts} sets of rounds, "
        f"{taken} pairs a point; {thrown} rounds thrown away for samples that did not count."
        f"\n\n{table(rows)}\n"
    )
    page.write_text(marked.section(page.read_text(), section, f"\n{said}"))
