"""A scripted stand-in for an SGLang server: the client's HTTP protocol, and whatever misbehaviour it is told.

Standard library only, so that it starts in well under a second: ``python server.py '{"token_s": 0.002}'`` prints its
port on the first line of stdout, SGLang-like log lines on stderr. Protocol as read in ``sglang/benchmark/serving.py``
and ``srt/entrypoints/http_server.py``: ``/generate`` streams ``data: {json}`` lines with the text so far, then
``[DONE]``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Behaviour:
    """What the server does. The defaults are an honest one: one token a chunk every ``token_s`` seconds.

    Counts of requests include the client's warm-up request, which is the first.
    """

    token_s: float = 0.002
    chunk_tokens: int = 1
    in_band_error: bool = False
    abort_without_text: bool = False
    end_after: int | None = None
    refuse_every: int | None = None
    fail_after: int | None = None
    die_at_request: int | None = None
    die_with_prompt_above: int | None = None
    hang_at_request: int | None = None
    server_info_s: float = 0.0
    server_info_closes: bool = False
    served_model_name: str = "dsv4-under-test"
    version: str = "0.5.15"
    context_length: int = 8192


class FakeServer:
    """Serves one behaviour; counts like ``/metrics`` and caches whole prompts until flushed."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.does = behaviour
        self.requests = 0
        self.running = 0
        self.cached: set[tuple[int, ...]] = set()
        self.counters = dict.fromkeys(
            (
                *("num_requests_total", "prompt_tokens_total", "generation_tokens_total"),
                *("num_aborted_requests_total", "cached_tokens_total"),
            ),
            0,
        )

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            lengths = [line.split(":")[1] for line in head.lower().splitlines() if line.startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0])) if lengths else b""
            await self.answer(method, path.partition("?")[0], body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, method: str, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        """Route one request."""
        status, value = 200, {}
        if path == "/generate":
            await self.generate(json.loads(body), writer)
            return
        if path in ("/server_info", "/get_server_info"):
            await asyncio.sleep(self.does.server_info_s)
            if self.does.server_info_closes:
                return
            value = self.info()
        elif path in ("/model_info", "/get_model_info"):
            value = {"model_path": self.does.served_model_name, "is_generation": True}
        elif path == "/v1/models":
            value = {"object": "list", "data": [{"id": self.does.served_model_name, "object": "model"}]}
        elif path == "/flush_cache":
            status = 400 if self.running else 200
            if not self.running:
                self.cached.clear()
        elif path == "/metrics":
            labels = f'{{engine_type="unified",model_name="{self.does.served_model_name}"}}'
            # A counter that never fired is absent, as in SGLang.
            value = "".join(f"sglang:{name}{labels} {float(n)}\n" for name, n in self.counters.items() if n)
        elif not path.startswith("/health"):
            status = 404
        await self.send(writer, status, value)
        log(f'INFO:     127.0.0.1:1 - "{method} {path} HTTP/1.1" {status} {"OK" if status == 200 else "Error"}')

    def info(self) -> dict[str, Any]:
        """What ``/server_info`` gives: arguments, and a list of internal states."""
        return {
            "served_model_name": self.does.served_model_name,
            "version": self.does.version,
            "context_length": self.does.context_length,
            "internal_states": [{"last_gen_throughput": 0.0}],
        }

    async def send(self, writer: asyncio.StreamWriter, status: int, value: Any) -> None:
        """Send one whole response."""
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()

    async def generate(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        """Stream one answer, or do what this server does instead."""
        self.requests += 1
        does, number = self.does, self.requests
        prompt = tuple(asked.get("input_ids") or asked["text"].split())
        seen = prompt in self.cached
        self.cached.add(prompt)
        self.counters["cached_tokens_total"] += len(prompt) - 1 if seen else 0
        log(
            f"Prefill batch, #new-seq: 1, #new-token: {1 if seen else len(prompt)}, #cached-token:"
            f" {len(prompt) - 1 if seen else 0}, token usage: 0.00, #running-req: {self.running}, #queue-req: 0,"
            " #pending-token: 0, cpu graph: False, input throughput (token/s): 1.00"
        )
        refused = does.refuse_every is not None and number > 1 and number % does.refuse_every == 0
        if refused or (does.fail_after is not None and number > does.fail_after):
            status = 503 if refused else 500
            log(f'INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" {status} Error')
            await self.send(writer, status, {"error": "scripted"})
            return
        if does.die_with_prompt_above is not None and len(prompt) > does.die_with_prompt_above:
            log(
                "Scheduler hit an exception: Traceback (most recent call last):\n"
                "RuntimeError: CUDA error: an illegal memory access was encountered\n"
            )
            os._exit(9)
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        log('INFO:     127.0.0.1:1 - "POST /generate HTTP/1.1" 200 OK')
        self.running += 1
        try:
            await self.stream(int(asked["sampling_params"]["max_new_tokens"]), len(prompt), number, writer)
        finally:
            self.running -= 1

    async def stream(self, wanted: int, prompted: int, number: int, writer: asyncio.StreamWriter) -> None:
        """Write the chunks of one streamed answer."""
        does = self.does
        generated = 0
        if does.in_band_error:
            self.event(writer, {"error": {"message": "scripted", "code": 400}})
        elif does.abort_without_text:
            self.event(writer, self.chunk(0, prompted, {"type": "abort"}))
            self.counters["num_aborted_requests_total"] += 1
        else:
            last = min(wanted, does.end_after or wanted)
            while generated < last:
                step = min(does.chunk_tokens, last - generated)
                await asyncio.sleep(does.token_s * step)
                generated += step
                self.event(writer, self.chunk(generated, prompted, {"type": "length"} if generated == last else None))
                await writer.drain()
                if generated >= wanted // 2 and number == does.die_at_request:
                    os._exit(9)
                while generated >= wanted // 2 and number == does.hang_at_request:
                    await asyncio.sleep(1)
        self.event(writer, None)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        for name, count in (("num_requests", 1), ("prompt_tokens", prompted), ("generation_tokens", generated)):
            self.counters[f"{name}_total"] += count

    def chunk(self, generated: int, prompted: int, finish: dict[str, str] | None) -> dict[str, Any]:
        """One chunk's object: the text so far, one word a token."""
        return {
            "text": " ".join(f"t{n}" for n in range(generated)),
            "meta_info": {"prompt_tokens": prompted, "completion_tokens": generated, "finish_reason": finish},
        }

    def event(self, writer: asyncio.StreamWriter, value: dict[str, Any] | None) -> None:
        """Write one server-sent event as one HTTP chunk; None is the end mark."""
        data = f"data: {'[DONE]' if value is None else json.dumps(value)}\n\n".encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def log(text: str) -> None:
    """One line in SGLang's format."""
    print(time.strftime("[%Y-%m-%d %H:%M:%S] ") + text, file=sys.stderr, flush=True)


async def serve(behaviour: Behaviour) -> None:
    """Serve on a free port of the loopback interface until killed, or until the parent's end of stdin closes."""
    server = await asyncio.start_server(FakeServer(behaviour).connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    log("The server is fired up and ready to roll!")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(Behaviour(**json.loads(sys.argv[1]))))
