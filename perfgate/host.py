"""What a campaign runs on: this run's server (shared by its workers), its client, and its folder (edge)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfgate import models, paths, preflight
from perfgate.checks import ServerFacts
from perfgate.options import Options
from perfgate.recipe import Recipe
from perfgate.sampler import Sampler, Show
from perfgate.server import Server, ServerError, attach, start
from perfgate.server.shared import SharedServer
from perfgate.workload.client import Client


class LocalHost:
    """Starts the recipe's server on demand and keeps one preloaded client for the whole run."""

    def __init__(self, options: Options, recipe: Recipe, shared: SharedServer, client: Client, show: Show) -> None:
        self._options, self._recipe, self._shared, self._client, self._show = options, recipe, shared, client, show
        self._lost = False
        self.server: Server | None = None

    def sampler(self, start_number: int) -> Sampler:
        """A sampler on a live server: the one that runs, or a new one where there is none. Raises ServerError."""
        if self._options.server_url is not None:
            self.server = attach(self._options.server_url, self._recipe, self._options.tokenizer)
        elif self._lost:
            self.server = self._shared.replace(self._start(start_number))
        else:
            self.server = self._shared.acquire(self._start(start_number))
        self._lost = False
        folder = self._options.report / "samples"
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = self._options.tokenizer or self.server.model or model_folder(self._recipe)
        return Sampler(self._recipe, self.server, self._client, tokenizer, folder, start_number)

    def lost(self) -> None:
        """The server is of no more use: end what is left of it."""
        self._lost = True
        if self._options.server_url is None:
            self._shared.drop()

    def facts(self) -> ServerFacts | None:
        return None if self.server is None else server_facts(self.server, self._recipe)

    def _start(self, number: int) -> Any:
        def begin() -> Server:
            log = self._options.report / f"server-start{number}.log"
            return start(
                self._recipe, model_folder(self._recipe), log, paths.ledger_dir(), self._options.port, self._show
            )

        return begin


def model_folder(recipe: Recipe) -> Path:
    """The recipe's model on this machine, generated if need be. Raises ServerError."""
    if recipe.model.path is not None:
        if not (recipe.model.path / "config.json").is_file():
            raise ServerError(
                f"model.path {recipe.model.path} has no config.json; download the model there, or correct the path"
            )
        return recipe.model.path
    assert recipe.model.generator is not None
    try:
        return models.ensure(recipe.model.generator, recipe.model.options, paths.models_dir())
    except models.ModelError as error:
        raise ServerError(str(error)) from None


def server_facts(server: Server, recipe: Recipe) -> ServerFacts:
    """What ``/server_info`` says of capacity and graphs (keys of 0.5.15 to 0.5.23)."""
    info = server.info
    states = info.get("internal_states")
    state: Mapping[str, Any] = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    memory = state.get("memory_usage")
    pool = memory.get("token_capacity") if isinstance(memory, dict) else None
    graphs = state.get("decode_cuda_graph_bs") or info.get("decode_cuda_graph_bs")
    capacity = preflight.ServerFacts(
        max_total_tokens=_whole(info.get("max_total_num_tokens") or pool),
        max_running_requests=_whole(
            state.get("effective_max_running_requests_per_dp") or info.get("max_running_requests")
        ),
        context_len=_whole(info.get("context_len") or info.get("context_length")),
        graph_batch_sizes=tuple(int(s) for s in graphs) if isinstance(graphs, list) and graphs else None,
        no_graphs_because=recipe.graphs_reason or "",
        graphs_expected=recipe.graphs_reason is None,
        page_size=_whole(info.get("page_size")) or 1,
    )
    return ServerFacts(start_seconds=server.start_seconds, owned=server.owned, capacity=capacity)


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
