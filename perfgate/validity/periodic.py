"""A stranger who comes by the clock: one prompt every minute shows in the whole log, even if no sample was hit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binom

from perfgate.serverlog import EventKind, PrefillBatch, ServerLog
from perfgate.validity.lines import health_gets, is_probe, page_size, primary
from perfgate.validity.problem import Problem, ProblemKind, problem

SHORTEST_S, LONGEST_S = 5.0, 900.0
"""Periods looked for. Shorter ones always hit a sample; longer ones need hours of log."""
JITTER_S = 1.5
"""How far from the beat a line may be: whole-second times, and a client that sleeps between answers."""
_AT_MOST = 400


@dataclass(frozen=True)
class Span:
    """When a sample (or the harness's own warm-up) had the server: seconds since the epoch."""

    start: float
    end: float

    def holds(self, time: float) -> bool:
        """Whether a log line of that whole second may belong to it."""
        return self.start - 1 <= time <= self.end + 1


@dataclass(frozen=True)
class Beat:
    """Lines that come every ``period`` seconds from ``first`` on."""

    period: float
    first: float
    lines: tuple[PrefillBatch, ...]


def find_beat(lines: Sequence[PrefillBatch], spans: Sequence[Span] = ()) -> Beat | None:
    """The period that explains most of ``lines``: at least three, and 60 % of the beats that no span hides.

    Unless every line lies on it, it must also be one that chance would hardly show (5 %) among lines strewn as thickly
    as those off the beat, with as many periods tried.
    """
    timed = sorted(((line.time, line) for line in lines if line.time is not None), key=lambda pair: pair[0])
    events: list[tuple[float, PrefillBatch]] = []
    for time, line in timed[:_AT_MOST]:
        if not events or time - events[-1][0] > 2 * JITTER_S:
            events.append((time, line))
    tries = [
        (first, (second - first) / missed)
        for i, (first, _) in enumerate(events)
        for second, _ in events[i + 1 : i + 6]
        for missed in (1, 2, 3)
        if SHORTEST_S <= (second - first) / missed <= LONGEST_S
    ]
    best: Beat | None = None
    for first, period in tries:
        beat = _follow(events, first, period, spans, len(tries))
        if beat and (best is None or len(beat.lines) > len(best.lines)):
            best = beat
    return best


def _follow(
    events: Sequence[tuple[float, PrefillBatch]], first: float, period: float, spans: Sequence[Span], tries: int
) -> Beat | None:
    times = [time for time, _ in events]
    on_beat: list[PrefillBatch] = []
    expected, at = 0, first
    while at <= times[-1] + JITTER_S:
        near = bisect_left(times, at - JITTER_S)
        if near < len(times) and times[near] <= at + JITTER_S:
            on_beat.append(events[near][1])
            expected += 1
            at = times[near]  # a client that sleeps between answers drifts; follow it
        elif not any(span.holds(at) for span in spans):
            expected += 1
        at += period
    if len(on_beat) < 3 or len(on_beat) < 0.6 * expected:
        return None
    off_beat = len(events) - len(on_beat)
    if off_beat:
        # Two lines make the period; the others lie on it by chance with the share of time that the rest covers.
        share = min(1.0, (off_beat + 1) * 2 * JITTER_S / (times[-1] - times[0]))
        if tries * binom.sf(len(on_beat) - 3, expected - 2, share) > 0.05:
            return None
    ends = [line.time for line in on_beat if line.time is not None]
    beats = round((ends[-1] - ends[0]) / period)
    return Beat((ends[-1] - ends[0]) / beats if beats else period, ends[0], tuple(on_beat))


def periodic_strays(log: ServerLog, spans: Sequence[Span], input_lens: Sequence[int] = ()) -> list[Problem]:
    """Strangers with a beat in a whole log (``stray_beat``). Invalid where a beat falls into a span."""
    beat = stray_beat(log, spans, input_lens)
    return [] if beat is None else [beat_problem(beat, spans)]


def beat_problem(beat: Beat, spans: Sequence[Span]) -> Problem:
    """The beat in words, with its period and lines; invalid where it falls into one of ``spans``."""
    hit = [span for span in spans if falls_into(beat, span)]
    message = f"a prompt that is not ours comes every {beat.period:.0f} s, {len(beat.lines)} times in this log"
    if hit:
        message += f"; {len(hit)} of {len(spans)} samples lie on its beat"
    return problem(ProblemKind.PERIODIC_STRAY, message, [line.raw for line in beat.lines], invalid=bool(hit))


def stray_beat(log: ServerLog, spans: Sequence[Span], input_lens: Sequence[int] = ()) -> Beat | None:
    """The beat of a stranger's prompts in a whole log, or None.

    Prefill lines after the server was ready and outside ``spans`` are nobody's of ours; inside, single prompts whose
    length is none of ``input_lens``. SGLang's own health probes are left out.
    """
    prefill, _ = primary(log)
    page = page_size(log, prefill)
    asked = health_gets(log) > 0
    probes = [e.time for e in log.of(EventKind.ACCESS) if str(e.fields.get("path")).startswith("/health")]
    ready = log.ready.line_no if log.ready else 0
    strays = []
    for line in prefill:
        if line.time is None or line.line_no <= ready or is_probe(line, page, None, asked):
            continue
        if any(t is not None and 0 <= t - line.time <= 2 for t in probes) and line.new_tokens in (1, page):
            continue
        if any(span.holds(line.time) for span in spans) and (not input_lens or _ours(line, input_lens, page)):
            continue
        strays.append(line)
    return find_beat(strays, spans)


def falls_into(beat: Beat, span: Span) -> bool:
    """Whether a line of the beat is due inside the span."""
    number = -(-(span.start - beat.first) // beat.period)
    return beat.first + number * beat.period <= span.end


def _ours(line: PrefillBatch, input_lens: Sequence[int], page: int) -> bool:
    """Whether a line's length is one of ours. A stranger as short as ours, or in one batch with enough of them, is not seen
    here; the counters tell him."""
    tokens = line.new_tokens + line.cached_tokens
    if line.new_seqs != 1:
        return tokens <= line.new_seqs * 4 * (max(input_lens) + page)
    return any(length / 2 <= tokens <= 4 * (length + page) for length in input_lens)
