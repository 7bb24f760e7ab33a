"""Requests that are not this sample's, by running counts and access lines."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator

from perfgate.serverlog import EventKind, ServerLog
from perfgate.validity.lines import primary
from perfgate.validity.problem import Problem, problem
from perfgate.validity.problem import ProblemKind as Kind
from perfgate.validity.runs import GENERATION_PATHS, Window, generation_posts
from perfgate.workload import Plan

# What the client and the harness send besides; anything else that is posted comes from someone else.
_OWN_POSTS = (*GENERATION_PATHS, "/flush_cache")


def check_running(log: ServerLog, plan: Plan) -> Iterator[Problem]:
    """Running plus waiting requests above C: someone else's are among them (speculation adds none).

    A prefill line counts with its running requests alone, and against 2C: with overlap scheduling requests that have
    ended stay among them until the next decode step, while their successors, sent the moment the client had the last
    token, are prefilled one batch after another. Where a whole wave ends at once that comes to 2C. Seen on a CPU server
    at C=64: prefill lines with 73 to 126 running, no decode line above 64, and nobody else there.
    """
    prefill, decode = primary(log)
    bound = max(plan.concurrency, plan.warmup_requests)
    loads = [(p.line_no, p.time, p.rank, p.running, p.raw) for p in prefill if p.running > 2 * bound]
    loads += [(d.line_no, d.time, d.rank, d.running + d.queued, d.raw) for d in decode]
    loads.sort(key=lambda load: load[0])
    over = [(count, raw) for _, _, _, count, raw in loads if count > bound]
    if not over and len({rank for _, _, rank, _, _ in loads}) > 1:
        # Data-parallel ranks each count their own: add the least of each within one second.
        seconds: dict[float, dict[str | None, tuple[int, str]]] = defaultdict(dict)
        for _, time, rank, count, raw in loads:
            if time is not None:
                least = seconds[math.floor(time)].setdefault(rank, (count, raw))
                if count < least[0]:
                    seconds[math.floor(time)][rank] = (count, raw)
        for ranks in seconds.values():
            total = sum(count for count, _ in ranks.values())
            if total > bound:
                over += [(total, raw) for _, raw in ranks.values()]
    if over:
        most = max(count for count, _ in over)
        message = f"{most} requests were running or waiting at C={plan.concurrency}: others' requests are among them"
        yield problem(Kind.STRAY_REQUESTS, message, [raw for _, raw in over])


def check_access(window: Window, plan: Plan) -> Iterator[Problem]:
    """Who asked what: other clients and paths, more or fewer requests than planned, failures, health probes."""
    log = window.log
    posts = generation_posts(log)
    path = Counter(str(e.fields["path"]) for e in posts).most_common(1)
    hosts = Counter(_host(str(e.fields["client"])) for e in posts)
    own_host = hosts.most_common(1)[0][0] if hosts else None
    strangers = [
        event.text
        for event in log.of(EventKind.ACCESS)
        if event.fields.get("method") in ("POST", "PUT", "DELETE")
        and (
            event.fields["path"] not in _OWN_POSTS
            or (event.fields["path"] in GENERATION_PATHS and event.fields["path"] != path[0][0])
            or _host(str(event.fields["client"])) != own_host
        )
        and own_host is not None
    ]
    if strangers:
        yield problem(Kind.STRAY_CLIENT, f"{len(strangers)} requests came from another client", strangers)
    failed = [e.text for e in posts if e.fields["status"] >= 400]
    if failed:
        yield problem(Kind.REQUEST_ERROR, f"{len(failed)} requests were refused", failed)
    if len(posts) > plan.requests:
        message = f"the server answered {len(posts)} requests, {plan.requests} were planned (warm-up included)"
        yield problem(Kind.STRAY_REQUESTS, message, [f"{len(posts)} POST lines", posts[-1].text])
    elif posts and len(posts) < plan.requests and window.complete:
        message = (
            f"the server's log holds {len(posts)} requests where {plan.requests} were sent: another server answered"
        )
        yield problem(Kind.REQUESTS_MISSING, message, [f"{len(posts)} POST lines", posts[-1].text])
    probes = [e.text for e in log.of(EventKind.ACCESS) if str(e.fields.get("path")).startswith("/health")]
    if probes:
        message = "/health was asked during the sample; on an idle server it generates a token"
        yield problem(Kind.HEALTH_PROBE, message, probes, invalid=False)
    yield from _flushes(log, [e.line_no for e in posts], plan)


def _flushes(log: ServerLog, posts: list[int], plan: Plan) -> Iterator[Problem]:
    if len(posts) <= plan.warmup_requests:
        return
    inside = [
        e.text
        for e in log.of(EventKind.ACCESS)
        if e.fields.get("path") == "/flush_cache" and posts[plan.warmup_requests] < e.line_no < posts[-1]
    ]
    if inside:
        yield problem(Kind.FLUSH, "the cache was flushed in the middle of the sample", inside, invalid=False)


def _host(client: str) -> str:
    return client.rpartition(":")[0]
