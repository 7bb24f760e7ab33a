#!/usr/bin/env python3
"""A table of a campaign's results: python3 tools/gpu/campaign_table.py GPU0.tar GPU1.tar ... [--page docs/h200.md]

Reads each ``*/result.json`` in the archives that campaign.sh wrote (or in folders) and prints a row a point, in Markdown: every
point asked for, whatever became of it, then how patched stands to stock and to fallback. --page puts it between the page's
``<!-- campaign -->`` marks. A recipe that was run twice has the rows of its last run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfgate import marked
from perfgate.result import PointResult, RunResult

HEAD = (
    "| recipe | C | tokens/s [95 %] | step, ms [95 %] | samples counted | spread of the step time | starts apart | outcome |",
    "|---|--:|---|---|--:|--:|--:|---|",
)


def results(paths: list[Path]) -> dict[str, RunResult]:
    """Results by recipe, the last run of each. Raises OSError and pydantic's ValidationError."""
    found = sorted(
        (RunResult.model_validate_json(text) for path in paths for text in _texts(path)), key=lambda r: r.started_at
    )
    return {result.recipe: result for result in found}


def _texts(path: Path) -> Iterator[str]:
    if path.is_dir():
        for file in sorted(path.rglob("result.json")):
            yield file.read_text(encoding="utf-8")
        return
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            if Path(member.name).name == "result.json" and (file := archive.extractfile(member)):
                yield file.read().decode()


def _measured(point: PointResult, name: str, digits: int) -> str:
    metric = next((m for m in point.metrics if m.name == name), None)
    if metric is None or metric.value is None or metric.low is None or metric.high is None:
        return "-"
    return f"{metric.value:,.{digits}f} [{metric.low:,.{digits}f}, {metric.high:,.{digits}f}]"


def _steps(point: PointResult) -> dict[int, list[float]]:
    """Step times of the samples that count, by server start."""
    starts: dict[int, list[float]] = {}
    for sample in point.samples:
        if sample.counted and sample.step_ms is not None:
            starts.setdefault(sample.server_start, []).append(sample.step_ms)
    return starts


def spreads(point: PointResult) -> tuple[str, str]:
    """Largest standard deviation within a start, and the range of the starts' medians, each over the median."""
    starts = _steps(point)
    several = [values for values in starts.values() if len(values) > 1]
    middle = statistics.median(v for values in starts.values() for v in values) if starts else 0.0
    within = f"{max(map(statistics.stdev, several)) / middle:.1%}" if several else "-"
    medians = [statistics.median(values) for values in starts.values()]
    return within, f"{(max(medians) - min(medians)) / middle:.1%}" if len(medians) > 1 else "-"


def rows(found: dict[str, RunResult]) -> list[str]:
    """A Markdown row a point, recipes in alphabetical order."""
    lines = []
    for name, result in sorted(found.items()):
        for point in result.points:
            counted = sum(map(len, _steps(point).values()))
            within, between = spreads(point)
            verdict = point.outcome if point.cause in ("", "NONE") else f"{point.outcome} ({point.cause})"
            cells = (
                name, point.concurrency, _measured(point, "throughput", 0), _measured(point, "step_time", 3),
                f"{counted} of {len(point.samples)}", within, between, verdict,
            )  # fmt: skip
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def ratios(found: dict[str, RunResult]) -> list[str]:
    """Patched over stock and over fallback, by context and concurrency; what lacks one of the two is not shown."""
    lines = []
    for context in ("", "-1m"):
        for other in ("stock", "fallback"):
            new, old = found.get(f"v4mini-patched{context}"), found.get(f"v4mini-{other}{context}")
            if new and old:
                shares = [_ratio(new, old, point.concurrency) for point in new.points]
                lines.append(f"- `{new.recipe}` over `{old.recipe}`: {', '.join(s for s in shares if s)}")
    return lines


def _ratio(new: RunResult, old: RunResult, concurrency: int) -> str:
    values = [
        metric.value
        for result in (new, old)
        for point in result.points
        for metric in point.metrics
        if point.concurrency == concurrency and metric.name == "throughput" and metric.value
    ]
    return f"C={concurrency} {values[0] / values[1]:.2f}" if len(values) == 2 else ""


def text(found: dict[str, RunResult]) -> str:
    lines = [*HEAD, *rows(found)]
    compared = ratios(found)
    return "\n".join([*lines, *(["", "Throughput:", "", *compared] if compared else [])]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    table = text(results(asked.results))
    if asked.page is None:
        print(table, end="")
        return 0
    try:
        page = marked.section(asked.page.read_text(encoding="utf-8"), "campaign", f"\n{table}")
    except ValueError as error:
        print(f"{asked.page}: {error}", file=sys.stderr)
        return 2
    asked.page.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
