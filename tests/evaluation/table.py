"""The evaluation's tables as markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import launches
from measure import Count
from turns import EACH

from perfgate.result import Outcome
from perfgate.turns import LEAST, MOST
from perfgate.yardstick import AGREE, UNSTATED


def quiet_table(rows: Sequence[tuple[str, Count]], unit: str = "samples a point") -> str:
    lines = [
        f"| unchanged code | runs | false alarms | at most (95 %) | IMPROVED | INCONCLUSIVE | {unit} |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, c in rows:
        lines.append(
            f"| {name} | {c.runs} | {c.alarms} | {c.alarm_limit:.2%} | {c.rate(Outcome.IMPROVED):.1%} "
            f"| {c.rate(Outcome.INCONCLUSIVE):.1%} | {c.samples:.1f} |"
        )
    return "\n".join(lines)


def slowed_table(rows: Sequence[tuple[str, float, Count]], unit: str = "samples") -> str:
    lines = [
        f"| noise | true loss | points | REGRESSION | INCONCLUSIVE | PASS | IMPROVED | {unit} |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, drop, c in rows:
        lines.append(
            f"| {name} | {drop:.2%} | {c.runs} | {c.rate(Outcome.REGRESSION):.1%} | {c.rate(Outcome.INCONCLUSIVE):.1%} "
            f"| {c.rate(Outcome.PASS):.1%} | {c.rate(Outcome.IMPROVED):.1%} | {c.samples:.1f} |"
        )
    return "\n".join(lines)


def history_table(found: Mapping[str, int], tries: int) -> str:
    lines = ["| history of 30 runs: what is found | share |", "|---|--:|"]
    lines += [f"| {name} | {n / tries:.1%} |" for name, n in found.items()]
    return "\n".join(lines)


PAGE = """# How good is the judgement?

The first part is synthetic, the second a real server. A *noise width* is the standard deviation of one sample, all causes
together. A *false alarm* is a whole run (all its points, throughput and step time together) of unchanged code that is
called REGRESSION.

<!-- synthetic -->
Measured on {date} by `pytest tests/evaluation -m evaluation`, which writes this part; {minutes:.1f} minutes on {workers}
cores at {scale:g} of the full number of runs (`EVALUATION_SCALE`), fresh seeds (`EVALUATION_SEED={seed}` repeats them).
Every verdict comes from the judge that the gate uses, on synthetic samples whose truth is known.

Unless a row says otherwise the noise width is 0.5 %, the baseline has 10 samples, the run stops as soon as the answer is
clear after 5 to 20 samples, and all samples of a side come from one server start. Where they come from several, 70 % of
the noise width lies between the starts.

## Unchanged code
Promised: at most 1 false alarm in 200 runs.

{quiet}

## Slower code
Promised: 95 % of losses of 3 % found at 0.5 % noise, 95 % of losses of three noise widths found with up to 20 samples a
side, and INCONCLUSIVE rather than wrong in between. What PASS promises is that a loss of the recipe's relative bound
(1.5 %) is excluded, so a smaller loss may pass. "20/20" rows judge 20 samples on either side at once.

{slowed}

## A/B on a drifting machine
Pairs at 0.5 % noise while the machine drifts by up to 5 % over the run. Bursts slow the machine by up to half; each hits
one sample of a pair or both, as it comes.

{ab}

## Histories

{histories}

## What the figures do not cover
Between-start spread that is larger than the recipe says and that neither side shows, because each has one start:
nothing can tell it from a change (what is done where the recipe says nothing stands below). Several starts on each side, or an A/B whose sides take turns, can. What several starts
are worth is limited too: 5 on each side leave 8 degrees of freedom, with which the best test there is (Student's t on the
starts' means) finds 81 % of losses of three noise widths at one false alarm in 200 runs. The judge finds more because
the run's other points show the same starts.
<!-- /synthetic -->
"""


def page(old: str, new: str) -> str:
    """``new`` with the parts that other commands have written into ``old``: all that follows the synthetic part."""
    _, mark, rest = old.partition("<!-- /synthetic -->\n")
    return new + rest if mark else new


TURNS = f"""
## A/B in turns
Where memory holds one server the sides take turns: {LEAST} to {MOST} starts of each, {EACH} samples of each of three points
at a start, until the answer is clear. A pair then lies between two starts, whose spread does not cancel. The recipe states
0.1 % for it, too little everywhere here; the noise width within a start is 0.5 %, and the machine drifts by up to 5 % over
the run. Measured on {{date}} by `pytest tests/evaluation -m evaluation -k turns`; {{minutes:.1f}} minutes on {{workers}} cores at
{{scale:g}} of the full number of runs, `EVALUATION_SEED={{seed}}`.

{{quiet}}

{{slowed}}

"""


LAUNCHES = f"""
## Server starts that differ, of a recipe that does not say by how much
The workflow of [baselines.md](baselines.md): a baseline of one start or several (`--record --starts N`), and a run of one start or
several, {launches.EACH} samples of each of three points at a start (5 to 10 where a run has one). The noise width within a start is
{launches.QUIET:.1%}. Measured on {{date}} by `pytest tests/evaluation -m evaluation -k launches`; {{minutes:.1f}} minutes on {{workers}} cores at
{{scale:g}} of the full number of runs, `EVALUATION_SEED={{seed}}`.

{{quiet}}

{{slowed}}

One start against one tells changes of about 5 % and more: an alarm then allows for {UNSTATED:.0%} between starts, and PASS, which must
not fail every unchanged run, for {AGREE:.1%}, so that it excludes a loss of 1.5 % only where starts agree as well as that.

Starts in one of two modes 12.5 % apart are beyond the promise: six starts of which the three recorded are in the faster mode and the
three of the run in the slower look like a loss, one run in 64 at each point, and no judge of six starts can tell them from one. The
other points' starts, where they differ, keep this one from most of those alarms.
"""
