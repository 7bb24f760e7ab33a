"""The few HTTP calls that the harness itself makes of a server (edge). None of them disturbs a measurement between samples."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a loopback server is never behind a proxy


class ServerHttpError(RuntimeError):
    """A request that the server did not answer as it should; the message names the URL and the answer.

    ``status`` is that of an answer to a post, None where nothing answered.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def request(url: str, method: str = "GET", timeout: float = 10.0) -> tuple[int, bytes]:
    """Status and body; an error status is returned, not raised. Raises ServerHttpError when nothing answers."""
    call = urllib.request.Request(url, method=method, data=b"" if method == "POST" else None)
    try:
        with _OPENER.open(call, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError) as error:
        raise ServerHttpError(f"{method} {url}: {getattr(error, 'reason', error)}") from None


def get_json(url: str, timeout: float = 10.0) -> dict[str, Any]:
    """The JSON object at ``url``. Raises ServerHttpError for any other answer."""
    status, body = request(url, timeout=timeout)
    if status != 200:
        raise ServerHttpError(f"GET {url}: status {status}: {body[:200]!r}")
    try:
        value = json.loads(body)
    except ValueError as error:
        raise ServerHttpError(f"GET {url}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ServerHttpError(f"GET {url}: expected a JSON object, got {type(value).__name__}")
    return value


def post_json(url: str, value: dict[str, Any], timeout: float) -> bytes:
    """Post a JSON object and return the answer's body. Raises ServerHttpError for anything but status 200."""
    body = json.dumps(value).encode()
    call = urllib.request.Request(url, method="POST", data=body, headers={"Content-Type": "application/json"})
    try:
        with _OPENER.open(call, timeout=timeout) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        raise ServerHttpError(f"POST {url}: status {error.code}: {error.read()[:200]!r}", error.code) from None
    except (OSError, ValueError) as error:
        raise ServerHttpError(f"POST {url}: {error}") from None


def generate_one(base_url: str, ids: Sequence[int], timeout: float) -> None:
    """Send one prompt of exactly these token ids for one token. Raises ServerHttpError for anything but an answer."""
    asked = {"input_ids": list(ids), "sampling_params": _greedy(1)}
    _generate(base_url, asked, timeout, f"{len(ids)} prompt tokens", _answered)


def generate_burst(base_url: str, prompts: Sequence[Sequence[int]], lengths: Sequence[int], timeout: float) -> None:
    """Send prompts of exactly these token ids at once, one of ``lengths`` tokens to generate for each. Raises ServerHttpError
    unless all are answered."""
    asked = {"input_ids": [list(one) for one in prompts], "sampling_params": [_greedy(length) for length in lengths]}

    def all_answered(value: object) -> bool:
        return isinstance(value, list) and len(value) == len(prompts) and all(map(_answered, value))

    _generate(base_url, asked, timeout, f"{len(prompts)} prompts at once", all_answered)


def _greedy(tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": True}


def _answered(value: object) -> bool:
    return isinstance(value, dict) and "error" not in value and "meta_info" in value


def _generate(base_url: str, asked: dict[str, Any], timeout: float, what: str, good: Callable[[object], bool]) -> None:
    """Post to ``/generate``; ``what`` was sent stands in every error."""
    url = base_url + "/generate"
    try:
        value = json.loads(post_json(url, asked, timeout))
    except (ServerHttpError, ValueError) as error:
        raise ServerHttpError(f"{error} ({what})") from None
    if not good(value):
        raise ServerHttpError(f"POST {url} ({what}): no generation in {str(value)[:200]}")


def server_info(base_url: str) -> dict[str, Any]:
    """``/server_info``, or its older name ``/get_server_info``."""
    try:
        return get_json(base_url + "/server_info")
    except ServerHttpError as error:
        if "status 404" not in str(error):
            raise
        return get_json(base_url + "/get_server_info")


LEFTOVER_SECONDS = 10.0
"""How long SGLang may take to put away requests of ours that have ended, or whose client was killed."""


def flush_cache(base_url: str, timeout: float = 30.0, patience: float = 0.0) -> None:
    """Empty the prefix cache. SGLang refuses with 400 while a request runs; that is an error here, never ignored.

    For ``patience`` seconds a refusal is asked again: where requests of ours may still be ending.
    """
    deadline = time.monotonic() + patience
    while True:
        status, body = request(base_url + "/flush_cache", method="POST", timeout=timeout)
        if status == 200 or time.monotonic() >= deadline:
            break
        time.sleep(0.2)
    if status != 200:
        raise ServerHttpError(
            f"POST {base_url}/flush_cache: status {status}: {body[:200].decode(errors='replace')!r}; a request that is "
            "not ours is probably running on this server"
        )


_METRIC = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)", re.MULTILINE)
_COUNTERS = (
    "prompt_tokens_total",
    "generation_tokens_total",
    "num_requests_total",
    "num_aborted_requests_total",
    "num_retracted_requests_total",
    "cached_tokens_total",
)


def parse_counters(text: str) -> dict[str, float]:
    """SGLang's counters from Prometheus text, summed over labels, without the ``sglang:`` prefix.

    A counter that never fired is absent from the text and counts 0 (SGLang registers it at its first use).
    """
    totals = dict.fromkeys(_COUNTERS, 0.0)
    for match in _METRIC.finditer(text):
        name = match["name"].removeprefix("sglang:")
        if name in totals:
            totals[name] += float(match["value"])
    return totals


def counters(base_url: str) -> dict[str, float] | None:
    """The counters now, or None where the server has no ``/metrics`` (started without ``--enable-metrics``)."""
    status, body = request(base_url + "/metrics")
    if status != 200 or b"sglang:" not in body:
        return None
    return parse_counters(body.decode(errors="replace"))
