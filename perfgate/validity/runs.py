"""Which part of a log belongs to which run of the client, told by the requests that it makes before and after."""

from __future__ import annotations

from dataclasses import dataclass

from perfgate.serverlog import Event, EventKind, ServerLog, between, lines_only
from perfgate.workload import Plan, Sample

GENERATION_PATHS = ("/generate", "/v1/completions", "/v1/chat/completions", "/completions", "/chat/completions")
_OPENING = ("/v1/models", "/model_info", "/get_model_info")
_CLOSING = ("/server_info", "/get_server_info")


@dataclass(frozen=True)
class Window:
    """A log cut to one client run. ``exact`` is False where the cut could only be made by whole seconds."""

    log: ServerLog
    exact: bool = True

    @property
    def complete(self) -> bool:
        """Whether what is not in the log did not happen; an excerpt, without the server's arguments, proves nothing."""
        return self.exact and self.log.facts.page_size is not None


def generation_posts(log: ServerLog) -> list[Event]:
    """The access lines of requests that generate."""
    return [
        event
        for event in log.of(EventKind.ACCESS)
        if event.fields.get("method") == "POST" and event.fields.get("path") in GENERATION_PATHS
    ]


def client_runs(log: ServerLog) -> list[ServerLog]:
    """The log of each client run: from its look at the model to its look at the server after the last request.

    A run that was cut short has no end, so what follows its start up to the next end is offered as well: the caller
    knows how many requests to expect.
    """
    runs: list[tuple[int, int]] = []
    starts: list[int] = []
    posts = end = 0
    opening = False
    for event in log.of(EventKind.ACCESS):
        method, path = event.fields.get("method"), event.fields.get("path")
        if method == "GET" and path in _OPENING:
            if end:
                runs += [(start, end) for start in starts]
                starts, posts, end = [], 0, 0
            if not opening:
                starts.append(event.line_no)
            opening = True
            continue
        opening = False
        if method == "POST" and path in GENERATION_PATHS:
            posts += 1
        elif method == "GET" and path in _CLOSING and posts:
            end = event.line_no
    if posts:
        last = log.events[-1].line_no
        runs += [(start, end or max(last, log.lines)) for start in starts]
    cut = [lines_only(log, range(first, last + 1)) for first, last in runs]
    return [run for run in cut if generation_posts(run)]


def _span(log: ServerLog) -> tuple[float, float] | None:
    times = [r.time for records in (log.prefill, log.decode, log.events) for r in records if r.time is not None]
    return (min(times), max(times)) if times else None


def _within(log: ServerLog, start: float | None, end: float | None) -> bool:
    span = _span(log)
    return span is not None and start is not None and end is not None and start - 2 <= span[0] and span[1] <= end + 2


def sample_window(log: ServerLog, sample: Sample, plan: Plan) -> Window:
    """The part of ``log`` that is this sample's. A log with one client run, or all within the sample's times, is whole.

    Among several, the run nearest to the sample's times is taken, or without those the one whose number of
    requests, then whose length, comes nearest. Without access lines the log is cut by time, without the second of the
    start, which may hold the end of the sample before.
    """
    runs = client_runs(log)
    start, end = sample.started_at, sample.ended_at
    if len(runs) == 1 or _within(log, start, end):
        return Window(log)
    if not runs:
        if start is None or end is None:
            return Window(log)
        cut = between(log, start, end, slack=0.0)
        return Window(cut, exact=False) if cut.prefill or cut.decode or cut.events else Window(log)

    def mismatch(run: ServerLog) -> tuple[float, float]:
        low, high = _span(run) or (0.0, 0.0)
        missed = abs(len(generation_posts(run)) - plan.requests)
        if start is not None and end is not None:
            return (abs(low - start) + abs(high - end), missed)
        return (missed, abs(high - low - sample.duration_s))

    return Window(min(runs, key=mismatch))
