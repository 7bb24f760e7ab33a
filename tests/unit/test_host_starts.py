"""A run of several server starts: what is said of its server holds of every one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfgate import preflight, recipe
from perfgate.checks import ServerFacts, weakest
from perfgate.host import LocalHost
from perfgate.server import Server

RECIPE = recipe.load(Path(__file__).parents[2] / "recipes" / "cpu-tiny.toml")


class Shared:
    """Servers one after the other, none of which is started."""

    def __init__(self, *servers: Server) -> None:
        self.servers = iter(servers)

    def acquire(self, start: Callable[[], Server]) -> Server:
        return next(self.servers)

    replace = acquire

    def drop(self) -> None:
        pass


def server(seconds: float, tokens: int) -> Server:
    info = {"max_total_num_tokens": tokens}
    return Server("http://127.0.0.1:1", "name", info, Path("model"), start_seconds=seconds)


def test_a_slow_start_and_a_small_pool_are_not_made_good_by_the_last_start(tmp_path: Path) -> None:
    options: Any = SimpleNamespace(report=tmp_path, server_url=None, tokenizer=None)
    gpus: Any = SimpleNamespace(servers=[], watch=lambda: None)
    shared: Any = Shared(server(20.0, 9000), server(300.0, 9000), server(21.0, 500), server(19.0, 9000))
    client: Any = None
    host = LocalHost(options, RECIPE, shared, client, lambda line: None, gpus)
    assert host.facts() is None
    for number in range(1, 5):
        host.sampler(number)
        host.lost()
    facts = host.facts()
    assert facts is not None
    assert (facts.start_seconds, facts.capacity.max_total_tokens) == (300.0, 500)


def test_the_weakest_start_counts_and_what_one_does_not_say_another_does() -> None:
    rich = preflight.ServerFacts(max_running_requests=64, graph_batch_sizes=(1, 64), graph_bytes=5)
    poor = preflight.ServerFacts(max_running_requests=16, graph_bytes=7, free_bytes=3)
    found = weakest([ServerFacts(1.0, capacity=poor), ServerFacts(None, capacity=rich)])
    assert found is not None
    assert (found.start_seconds, found.capacity.graph_batch_sizes) == (1.0, None)
    assert (found.capacity.max_running_requests, found.capacity.graph_bytes, found.capacity.free_bytes) == (16, 7, 3)
