"""SGLang's server log, 0.4.1 to 0.5.23, as frozen records."""

from perfgate.serverlog.parser import Parser, parse
from perfgate.serverlog.reader import file_size, read_file, stream_file
from perfgate.serverlog.records import (
    DecodeBatch,
    Event,
    EventKind,
    PrefillBatch,
    Ready,
    ServerFacts,
    ServerLog,
    ServerLogError,
)
from perfgate.serverlog.windows import between, lines_only

__all__ = [
    "DecodeBatch",
    "Event",
    "EventKind",
    "Parser",
    "PrefillBatch",
    "Ready",
    "ServerFacts",
    "ServerLog",
    "ServerLogError",
    "between",
    "file_size",
    "lines_only",
    "parse",
    "read_file",
    "stream_file",
]
