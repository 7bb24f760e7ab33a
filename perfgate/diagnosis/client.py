"""What SGLang's benchmark client printed: how far it came, and what stopped it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perfgate.diagnosis.lines import MAX_SEARCHED, quote, segments

_PROGRESS = re.compile(r"\| (\d{1,9})/(\d{1,9}) \[")
_ARGS = re.compile(r"\b(num_prompts|max_concurrency|random_input_len|random_output_len)=(\d{1,9})\b")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Refused|Disconnected)\b")
_TOKENIZER_FRAME = ("AutoTokenizer", "get_tokenizer", "tokenization_", "AutoConfig", "configuration_auto")
_TOKENIZER = re.compile(
    r"Fail to load tokenizer config|KeyError: ['\"]deepseek_v\w+['\"]|has no attribute 'max_position_embeddings'"
    r"|does not recognize this architecture|Can't load tokenizer|Tokenizer class \S+ does not exist"
    r"|(?i:fall\w{0,8} back .{0,60}\bgpt-?2\b)|Unrecognized model in|Couldn't instantiate the backend tokenizer"
)
_SUBSTITUTED = re.compile(r"(?i)fall\w{0,8} back .{0,60}\bgpt-?2\b")
_REFUSED = re.compile(r"Connection refused|ConnectionRefused|Errno 111|Cannot connect to host|Connect call failed")
_BROKEN = re.compile(
    r"RemoteDisconnected|ConnectionReset|Connection reset|ServerDisconnected|ClientPayloadError|Connection aborted"
    r"|ConnectionError|IncompleteRead|TransferEncodingError"
)
_NOT_READY = re.compile(r"is not ready\. Exiting|did not become ready within")
MAX_LINES = 12


@dataclass
class ClientFacts:
    """Read from the output; ``errors`` are lines that say what went wrong, first ones first."""

    given: bool = False
    table: bool = False
    done: int | None = None
    total: int | None = None
    progress_line: str = ""
    started: bool = False
    measured: bool = False
    numbers: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    final: str = ""
    tokenizer: list[str] = field(default_factory=list)
    substituted: bool = False
    refused: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    not_ready: list[str] = field(default_factory=list)
    last_line: str = ""

    @property
    def failed(self) -> bool:
        """True where the output shows that no result came."""
        return bool(self.final or self.not_ready or self.substituted) or (self.given and not self.table)


def read_client(output: str) -> ClientFacts:
    """Read what the client printed (stdout and stderr together, progress bars with carriage returns included)."""
    facts = ClientFacts(given=bool(output.strip()))
    in_traceback = tokenizer_frames = False
    for whole in segments(output):
        line = whole[:MAX_SEARCHED]
        kept = quote(line)
        facts.last_line = kept if line.strip() else facts.last_line
        for match in _PROGRESS.finditer(whole[-MAX_SEARCHED:]):
            facts.done, facts.total = int(match.group(1)), int(match.group(2))
            facts.progress_line = quote(whole[-MAX_SEARCHED:], match.start())
        if line.startswith("Traceback (most recent call last)"):
            in_traceback, tokenizer_frames = True, False
        elif in_traceback and line.startswith("  "):
            tokenizer_frames |= any(word in line for word in _TOKENIZER_FRAME)
        elif in_traceback and _EXCEPTION.match(line):
            in_traceback = False
            facts.final = kept
            if tokenizer_frames and not _REFUSED.search(line):
                _add(facts.tokenizer, kept)
        if "amespace(" in line:
            facts.numbers.update({name: int(value) for name, value in _ARGS.findall(line)})
            continue
        facts.table |= "Serving Benchmark Result" in line
        facts.started |= "Starting warmup with" in line
        facts.measured |= "Starting main benchmark run" in line
        facts.substituted |= bool(_SUBSTITUTED.search(line))
        if _TOKENIZER.search(line):
            _add(facts.tokenizer, kept)
        if _REFUSED.search(line):
            _add(facts.refused, kept)
        if _BROKEN.search(line):
            _add(facts.broken, kept)
        if _NOT_READY.search(line):
            _add(facts.not_ready, kept)
        if "output.error=" in line or "Warmup failed" in line or (facts.final == kept and facts.final):
            _add(facts.errors, kept)
    return facts


def _add(lines: list[str], line: str) -> None:
    if len(lines) < MAX_LINES and line not in lines:
        lines.append(line)
