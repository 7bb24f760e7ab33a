"""A stranger who comes by the clock: one prompt every minute shows in the whole log, even if no sample was hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """The period that explains most of ``lines``: at least three, and 60 % of the beats that no span hides."""
    timed = [(line.time, line) for line in lines if line.time is not None][:_AT_MOST]
    events: list[tuple[float, PrefillBatch]] = []
    for time, line in sorted(timed, key=lambda pair: pair[0]):
        if not events or time - events[-1][0] > 2 * JITTER_S:
            events.append((time, line))
    best: Beat | None = None
    for i, (first, _) in enumerate(events):
        for second, _ in events[i + 1 : i + 6]:
            for missed in (1, 2, 3):
                period = (second - first) / missed
                if not SHORTEST_S <= period <= LONGEST_S:
                    continue
                beat = _follow(events, first, period, spans)
                if beat and (best is None or len(beat.lines) > len(best.lines)):
                    best = beat
    return best


def _follow(
    events: Sequence[tuple[float, PrefillBatch]], first: float, period: float, spans: Sequence[Span]
) -> Beat | None:
    on_beat: list[PrefillBatch] = []
    expected, at, step = 0, first, period
    last = events[-1][0]
    while at <= last + JITTER_S:
        near = min(events, key=lambda event: abs(event[0] - at))
        if abs(near[0] - at) <= JITTER_S:
            on_beat.append(near[1])
            expected += 1
            at = near[0]  # a client that sleeps drifts; follow it
        elif not any(span.holds(at) for span in spans):
            expected += 1
        at += step
    if len(on_beat) < 3 or len(on_beat) < 0.6 * expected:
        return None
    times = [line.time for line in on_beat if line.time is not None]
    beats = round((times[-1] - times[0]) / period)
    return Beat((times[-1] - times[0]) / beats if beats else period, times[0], tuple(on_beat))


def periodic_strays(log: ServerLog, spans: Sequence[Span], input_lens: Sequence[int] = ()) -> list[Problem]:
    """Strangers with a beat in a whole log.

    Prefill lines after the server was ready and outside ``spans`` are nobody's of ours; inside, single prompts whose
    length is none of ``input_lens``. SGLang's own health probes are left out. Invalid where a beat falls into a span.
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
    beat = find_beat(strays, spans)
    if beat is None:
        return []
    hit = [span for span in spans if _beats_in(beat, span)]
    message = f"a prompt that is not ours comes every {beat.period:.0f} s, {len(beat.lines)} times in this log"
    if hit:
        message += f"; {len(hit)} of {len(spans)} samples lie on its beat"
    return [problem(ProblemKind.PERIODIC_STRAY, message, [line.raw for line in beat.lines], invalid=bool(hit))]


def _beats_in(beat: Beat, span: Span) -> bool:
    number = -(-(span.start - beat.first) // beat.period)
    return beat.first + number * beat.period <= span.end


def _ours(line: PrefillBatch, input_lens: Sequence[int], page: int) -> bool:
    if line.new_seqs != 1:
        return True
    tokens = line.new_tokens + line.cached_tokens
    return any(length / 2 <= tokens <= 4 * (length + page) for length in input_lens)
