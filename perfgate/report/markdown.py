"""The job summary: GitHub-flavoured markdown in which nothing that was measured can be read as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from perfgate.report import words
from perfgate.result import Outcome, PointResult, RunResult

LIMIT = 900_000
"""GitHub refuses a step summary above 1 MiB, and then shows none of it."""

_EVIDENCE_LINES = 20
_EVIDENCE_WIDTH = 300
_NUMBERED = "|".join(rf"(?<=^\d{{{digits}}})[.)](?=\s|$)" for digits in range(1, 10))
"""What makes a numbered list of a line: a point after nine digits at most, with nothing but space behind it."""

_MARKUP = re.compile(rf"[&<>\\`*_{{}}\[\]#|~@$]|(?<!\d):(?=[\w/])|:(?=[^\W\d]|/)|^[-+=]|{_NUMBERED}|(?<=\bwww)\.")


def escape(text: str) -> str:
    """Text on one line, as it stands: each character that markdown or HTML would read becomes a numeric reference.

    At signs, hashes and the colon of an address are among them, since GitHub makes mentions, issue numbers and links of
    them by itself; so are those that only mean something at the start of a line.
    """
    return _MARKUP.sub(lambda m: f"&#{ord(m.group())};", words.one_line(text))


def fence(lines: Iterable[str]) -> str:
    """Lines in a code block whose fence is longer than any run of backticks inside it."""
    body = [words.one_line(line, _EVIDENCE_WIDTH) for line in lines]
    longest = max((len(run) for line in body for run in re.findall("`+", line)), default=0)
    mark = "`" * max(3, longest + 1)
    return "\n".join([f"{mark}text", *body, mark])


def render(result: RunResult) -> str:
    """The run as markdown: verdict first, a table of the points, and for each that is not PASS why and what to do."""
    parts = [f"## {words.GLYPHS[result.outcome]} {escape(result.outcome)}: {escape(result.recipe)}", escape(result.why)]
    parts.append(_context(result))
    parts.append(_points(result) if result.points else "No point was measured.")
    parts += [_explain(point) for point in words.open_points(result)]
    parts += _lists(result)
    text = "\n\n".join(part for part in parts if part) + "\n"
    if len(text.encode()) > LIMIT:
        cut = text.encode()[:LIMIT].decode(errors="ignore").rsplit("\n", 1)[0]
        # The cut may fall inside a code block, whose fence would then swallow the rest: drop that whole part.
        text = cut[: cut.rfind("\n### ")] + "\n\n**Cut here: the JSON result in the artifacts has all of it.**\n"
    return text


def _context(result: RunResult) -> str:
    parts = [words.JUDGED_BY[result.judged_by], f"{result.interval_level:.0%} intervals", words.utc(result.started_at)]
    parts += [f"commit {result.commit}"] if result.commit else []
    parts += [f"baseline {result.baseline_file}"] if result.baseline_file else []
    parts.append(f"{words.number(result.seconds, 's')} s")
    return " · ".join(escape(part) for part in parts)


def _points(result: RunResult) -> str:
    speeds, steps = ("tokens/s", "floor", "baseline", "change"), ("step ms", "its baseline", "its change")
    head = ("C", "asked", "completed", *speeds, *steps, "verdict", "why")
    rows = []
    for point in result.points:
        speed, step = words.metric(point, "throughput"), words.metric(point, "step_time")
        rows.append(
            (
                str(point.concurrency),
                words.number(words.asked(point), "count") if point.samples else words.ABSENT,
                words.number(words.completed(point), "count") if point.samples else words.ABSENT,
                words.interval(speed) if speed else words.ABSENT,
                words.number(speed.floor if speed else None, "tok/s"),
                words.number(speed.baseline if speed else None, "tok/s"),
                words.number(speed.change if speed else None, "+%"),
                words.interval(step) if step else words.ABSENT,
                words.number(step.baseline if step else None, "ms"),
                words.number(step.change if step else None, "+%"),
                f"{words.GLYPHS[point.outcome]} {point.outcome}",
                point.why,
            )
        )
    return table(head, rows, right=10)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: int = 0) -> str:
    """A table with its first ``right`` columns set to the right; every cell is escaped."""
    lines = ["| " + " | ".join(escape(cell) for cell in head) + " |"]
    lines.append("|" + "".join(" ---: |" if i < right else " --- |" for i in range(len(head))))
    lines += ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _explain(point: PointResult) -> str:
    title = f"### {words.GLYPHS[point.outcome]} C={point.concurrency}: {escape(point.outcome)}"
    parts = [title, escape(point.why)]
    parts += [f"- {escape(m.name)}: {escape(m.why)}" for m in point.metrics if m.why and m.outcome is not Outcome.PASS]
    if point.cause != "NONE":
        parts.append(f"**Cause:** {escape(point.cause)}")
    if point.evidence:
        parts.append(fence(point.evidence[:_EVIDENCE_LINES]))
        more = len(point.evidence) - _EVIDENCE_LINES
        parts += [f"{more} more lines are in the JSON result."] if more > 0 else []
    if point.advice:
        parts.append(f"**What to do next:** {escape(point.advice)}")
    return "\n\n".join(parts)


def _lists(result: RunResult) -> list[str]:
    parts = []
    if result.not_run:
        parts.append(_bullets("Not run", result.not_run))
    if result.checks:
        rows = (
            (
                f"{words.GLYPHS[c.outcome]} {c.outcome}",
                c.name,
                f"{words.number(c.value)} {c.unit}",
                words.number(c.bound),
                c.why,
            )
            for c in result.checks
        )
        parts.append("### Checks\n\n" + table(("verdict", "check", "value", "bound", "why"), rows))
        for check in result.checks:
            if check.outcome.passes:
                continue
            if check.evidence:
                parts.append(_bullets(f"Evidence: {check.name}", check.evidence))
            if check.advice:
                parts.append(f"**What to do about {escape(check.name)}:** {escape(check.advice)}")
    if result.fingerprint_differences:
        parts.append(_bullets("Differs from the baseline's machine or settings", result.fingerprint_differences))
    for name, title in (("loosened", "Loosened floors"), ("orphaned_baselines", "Orphaned baselines")):
        items = result.extra.get(name)
        if items:
            parts.append(_bullets(title, items if isinstance(items, list) else [items]))
    if result.notes:
        parts.append(_bullets("Notes", result.notes))
    return parts


def _bullets(title: str, items: Iterable[object]) -> str:
    return f"### {title}\n\n" + "\n".join(f"- {escape(words.item(item))}" for item in items)
