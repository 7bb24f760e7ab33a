"""One pass over a server's log: every fault message, each with what was going on around it. Bounded memory."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass, field

from perfgate.diagnosis.facts import Facts
from perfgate.diagnosis.lines import MAX_SEARCHED, chunks, quote, split_prefix
from perfgate.diagnosis.rules import ADVICE_TEXT, ECHO_TEXT, HANDLED, LOOK, Look, Rule, Strength

MAX_HITS = 40
"""Messages kept of one kind: the first ones decide, and 64 ranks repeat the same line."""

MANY = 1000
"""Lines of one stretch that are neither batches nor accesses, from which on the stretch is searched as a whole."""

MAX_MESSAGE = 30
"""Lines that one exception's message takes at most."""

_RUNNING = re.compile(r"#running-req: (\d{1,9})\b")
_SERVER_ERROR = re.compile(r'INFO: +\S+ - "[A-Z]+ (\S+) HTTP/[\d.]+" 5\d\d')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: |:$|$)")
_CHAINED = ("During handling of the above", "The above exception was the direct cause")
_MARKERS = (
    ("Load weight begin", "weights"),
    ("Load weight end", "kv pool"),
    ("Memory pool end", "launch"),
    ("fired up and ready to roll", "serving"),
)
_TRACEBACK_WORDS = ("Traceback", *_CHAINED)
_GOOD = (" 200 OK", " 200")
_BATCH_HEADS = ("Decode", "Prefil")
_FLAGS = {
    "weights": ("in load_model\n", "in load_weights", "model_loader", "weight_utils"),
    "capture": ("graph_runner", "in capture", "cuda_graph"),
    "indexer": ("indexer", "mqa_logits"),
    "moe": ("/moe/", "fused_moe"),
    "kv": ("kv_cache", "memory_pool"),
    "layers": ("/layers/", "/models/"),
    "prefill": ("in forward_extend", "in _execute_extend", "in forward_split_prefill"),
    "decode": ("in forward_decode", "in _execute_decode"),
}


@dataclass
class Traceback:
    """A traceback and those chained to it; ``owner`` is the message that introduced it ("exception", "plugin", …)."""

    line_no: int
    head: str
    rank: str | None
    owner: str = ""
    flags: set[str] = field(default_factory=set)
    frame: str = ""
    exceptions: list[tuple[int, str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Hit:
    """One fault message. ``text`` is the quoted line, ``body`` the line after its prefix, ``prefill`` the last prefill
    line before it."""

    rule: Rule
    strength: Strength
    line_no: int
    text: str
    body: str
    stamp: str | None
    rank: str | None
    phase: str
    traceback: Traceback | None
    after_shutdown: bool
    handled: bool
    prefill: str = ""


@dataclass
class Scan:
    """What was found, in file order."""

    hits: list[Hit] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    counts: Counter[str] = field(default_factory=Counter)
    tracebacks: list[Traceback] = field(default_factory=list)
    pool_lines: list[tuple[int, str]] = field(default_factory=list)
    token_lines: list[tuple[int, str]] = field(default_factory=list)
    capture_lines: list[tuple[int, str]] = field(default_factory=list)
    first_error: tuple[int, str] | None = None
    eager: tuple[int, str, int] | None = None
    tail: tuple[tuple[int, str], ...] = ()
    first_stamp: str | None = None
    last_stamp: str | None = None
    lines: int = 0
    ready_line: int = 0
    shutdown: tuple[int, str] | None = None
    last_batch_line: int = 0
    last_batch_stamp: str | None = None
    recognised: bool = False
    phase: str = "launch"
    ranks: dict[str, str] = field(default_factory=dict)


class Scanner:
    """Feeds lines into a Scan; holds the state that only matters while reading."""

    def __init__(self) -> None:
        self.scan = Scan()
        self._open: Traceback | None = None
        self._in_frames = False
        self._chained = False
        self._stamped = 0
        self._first_stamped = self._last_stamped = ""
        self._batch_line = self._prefill_line = ""
        self._chunk, self._others, self._look_at = "", 0, LOOK
        self._tail: deque[tuple[int, str]] = deque(maxlen=5)

    def read(self, log: str) -> Scan:
        """Read the whole text and return what was found."""
        number = 0
        for chunk in chunks(log):
            self._chunk, self._others, self._look_at = chunk, 0, LOOK
            number = self._lines(number, chunk)
        scan = self.scan
        scan.lines = number
        scan.tail = tuple((at, quote(line)) for at, line in self._tail if line.strip())
        scan.first_stamp = split_prefix(self._first_stamped)[0]
        scan.last_stamp = split_prefix(self._last_stamped)[0]
        scan.last_batch_stamp = split_prefix(self._batch_line)[0]
        return scan

    def _lines(self, number: int, chunk: str) -> int:
        """Read one stretch, whose first line follows line ``number``; the number of its last line."""
        for number, line in enumerate(chunk.splitlines(), number + 1):  # noqa: B020
            if line[:1] in ("[", "(") and (end := line.find("] ", 20, 200)) > 0:
                self._last_stamped, self._stamped = line, number
                if not self._first_stamped:
                    self._first_stamped = line
                head = line[end + 2 : end + 8]
                if head == "INFO: " and line.endswith(_GOOD):
                    continue
                if head in _BATCH_HEADS and " batch" in line[end + 8 : end + 16]:
                    self._batch(number, line, head)
                    continue
            elif not line:
                continue
            elif self._in_frames and self._open and line.startswith("  "):
                self._frame(line)
                continue
            self._line(number, line)
        return number

    def _line(self, number: int, line: str) -> None:
        line = line[:MAX_SEARCHED]
        self._tail.append((number, line))
        if self._in_frames or line.startswith(_TRACEBACK_WORDS):
            self._traceback(number, line)
        self._others += 1
        if self._others == MANY:  # worth knowing once which texts there are at all to look for
            self._look_at = Look(self._chunk)
        if self._look_at.worth(line):
            self._look(number, line)

    def _traceback(self, number: int, line: str) -> None:
        if line.startswith(_CHAINED):
            self._chained = True
        elif line.startswith("Traceback (most recent call last)"):
            self._start(number, line, None, "")
        elif self._open and _EXCEPTION.match(line):
            self._open.exceptions.append((number, quote(line), line[:500]))
            self._in_frames = False

    def _look(self, number: int, line: str) -> None:
        scan = self.scan
        stamp, rank, body = split_prefix(line)
        if scan.first_error is None and (found := _SERVER_ERROR.match(body)) and found.group(1)[:7] != "/health":
            scan.first_error = (number, quote(line))
        scan.facts.take(number, body)
        self._mark(number, line, body, rank)
        if ADVICE_TEXT.search(body[:200]) or ECHO_TEXT.match(body[:40]):
            return
        if "Try to allocate " in body or "Available " in body:
            _keep(scan.token_lines, number, line)
        if "available" in body and "evictable" in body:
            _keep(scan.pool_lines, number, line)
        owner = "log"
        if fits := self._look_at.first(body):
            self._hit(*fits, number, line, body, stamp, rank)
            owner = fits[0].name
        if "Traceback (most recent call last)" in body and not line.startswith("Traceback"):
            self._start(number, line, rank, owner)

    def _hit(self, rule: Rule, at: int, number: int, line: str, body: str, stamp: str | None, rank: str | None) -> None:
        scan = self.scan
        scan.counts[rule.name] += 1
        if rule.name == "plugin":
            self._start(number, line, rank, "plugin")
            self._in_frames = False
        if scan.counts[rule.name] > MAX_HITS:
            return
        held = self._open if self._open and self._holds(number, stamp) else None
        strength = Strength.SYMPTOM if rule.name == "watchdog" and "self.soft=True" in body else rule.strength
        scan.hits.append(
            Hit(
                rule=rule,
                strength=strength,
                line_no=number,
                text=quote(line, at),
                body=quote(body, at),
                stamp=stamp or split_prefix(self._last_stamped)[0],
                rank=rank or (held.rank if held else None),
                phase=scan.ranks.get(rank or "", scan.phase),
                traceback=held,
                after_shutdown=scan.shutdown is not None,
                handled=HANDLED.search(body[:2000]) is not None,
                prefill=self._prefill_line[:500],
            )
        )

    def _holds(self, number: int, stamp: str | None) -> bool:
        """True for the open traceback's exception and the lines of its message, which have no stamp of their own."""
        exceptions = self._open.exceptions if self._open else []
        return stamp is None and bool(exceptions) and exceptions[-1][0] + MAX_MESSAGE >= number > self._stamped

    def _start(self, number: int, line: str, rank: str | None, owner: str) -> None:
        """Open a traceback, or go on with the open one where this is chained to it or printed under its message."""
        if not owner and self._open and (self._chained or (self._open.owner and not self._open.exceptions)):
            self._in_frames, self._chained = True, False
            return
        self._open = Traceback(number, quote(line), rank, owner)
        self._in_frames, self._chained = True, False
        if len(self.scan.tracebacks) < 4 * MAX_HITS:
            self.scan.tracebacks.append(self._open)

    def _frame(self, line: str) -> None:
        assert self._open is not None
        if line.startswith('  File "'):
            self._open.frame = quote(line)
            for flag, words in _FLAGS.items():
                if any(word in line + "\n" for word in words):
                    self._open.flags.add(flag)

    def _mark(self, number: int, line: str, body: str, rank: str | None) -> None:
        scan = self.scan
        phase = None
        for words, name in _MARKERS:
            if words in body:
                phase = name
        if body.startswith("Capture ") and "graph" in body[:60]:
            if " begin" in body[:80]:
                phase = "graph capture"
                _keep(scan.capture_lines, number, line)
            elif " end" in body[:80]:
                phase = "launch"
        if phase:
            scan.recognised = True
            scan.phase = phase
            if phase == "serving":
                scan.ready_line = number
                scan.ranks.clear()
            elif rank and len(scan.ranks) < 4096:
                scan.ranks[rank] = phase
        if body.startswith("server_args="):
            scan.recognised = True
        if scan.shutdown is None and ("SIGTERM received" in body or body.rstrip().endswith("INFO:     Shutting down")):
            scan.shutdown = (number, quote(line))
            scan.phase = "shutdown"
            scan.ranks.clear()

    def _batch(self, number: int, line: str, head: str) -> None:
        scan = self.scan
        scan.recognised = True
        scan.last_batch_line = number
        self._batch_line = line
        if head == "Prefil":
            self._prefill_line = line
        elif "graph: False" in line and (found := _RUNNING.search(line)):
            running = int(found.group(1))
            if scan.eager is None or running > scan.eager[2]:
                scan.eager = (number, quote(line), running)


def _keep(lines: list[tuple[int, str]], number: int, line: str) -> None:
    if len(lines) < MAX_HITS:
        lines.append((number, quote(line)))
