"""The server's own start-up facts: the resolved arguments, the pool's size, the graph sizes captured."""

from __future__ import annotations

import re
from typing import Any

from perfgate.serverlog.records import EventKind, ServerFacts

_INT_ARGS = ("page_size", "decode_log_interval", "stream_interval", "tp_size", "dp_size")
_TEXT_ARGS = ("served_model_name", "device")
_CAPACITY = {
    "max_total_num_tokens": "max_total_tokens",
    "max_running_requests": "max_running_requests",
    "context_len": "context_len",
    "chunked_prefill_size": "chunked_prefill_size",
}
_SIZES = re.compile(r"bs ?=? ?\[([\d, ]*)\]")


class FactCollector:
    """Gathers facts line by line; ``facts()`` freezes what is known so far."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}
        self._sizes: set[int] = set()
        self._seen_in_progress: set[int] = set()

    def see(self, kind: EventKind, message: str) -> dict[str, Any]:
        """Takes in one start-up line. Returns the values found in it, for the event's fields."""
        if kind is EventKind.SERVER_ARGS:
            found = _server_args(message)
        elif kind is EventKind.CAPACITY:
            found = {name: value for key, name in _CAPACITY.items() if (value := _int_after(message, key)) is not None}
        elif kind is EventKind.GRAPH_BEGIN:
            return self._graph_sizes(message)
        elif kind is EventKind.GRAPH_OFF:
            found = {"graph_off_reason": message.strip()}
        else:
            return {}
        self._found.update(found)
        return found

    def see_progress(self, size: int) -> None:
        """One batch size shown by the capture progress bar."""
        self._seen_in_progress.add(size)

    def _graph_sizes(self, message: str) -> dict[str, Any]:
        if "prefill" in message or "draft" in message:
            return {}
        listed = _SIZES.search(message)
        if listed is None:
            return {}
        sizes = {int(size) for size in listed[1].split(",") if size.strip().isdigit() and len(size.strip()) < 7}
        self._sizes |= sizes
        return {"graph_batch_sizes": tuple(sorted(sizes))}

    def facts(self) -> ServerFacts:
        """All that was found."""
        sizes = self._sizes or self._seen_in_progress
        return ServerFacts(graph_batch_sizes=tuple(sorted(sizes)), **self._found)


def _int_after(text: str, key: str) -> int | None:
    found = re.search(rf"\b{key}=(\d{{1,15}})\b", text)
    return int(found[1]) if found else None


def _server_args(message: str) -> dict[str, Any]:
    # Only named, harmless arguments are taken: the line also holds API keys and paths.
    found: dict[str, Any] = {
        key: value for key in _INT_ARGS if (value := _int_after(message, key)) is not None and value > 0
    }
    for key in _TEXT_ARGS:
        text = re.search(rf"\b{key}='([^']{{1,200}})'", message)
        if text:
            found[key] = text[1]
    if "disable_cuda_graph=True" in message:
        found["graph_off_reason"] = "disable_cuda_graph=True in the server's arguments"
    return found
