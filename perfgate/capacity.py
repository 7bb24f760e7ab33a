"""What a ready server says of its capacity: ``/server_info`` first, its start-up log where that is silent (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from perfgate import preflight, serverlog
from perfgate.recipe import Recipe

_FREE = re.compile(r"\bavailable_gpu_mem=(\d{1,7}(?:\.\d{1,6})?) GB")
_GRAPHS = re.compile(
    r"^\[[^\]]{19,80}?(?P<rank>(?: [A-Z]+\d+)*)\] Capture .{0,60}graph end\..{0,80}mem usage=(?P<used>\d{1,7}\.\d{1,6}) GB",
    re.MULTILINE,
)


def read(info: Mapping[str, Any], log: str, recipe: Recipe) -> preflight.ServerFacts:
    """Capacity from ``/server_info`` and the log's start. None where neither says.

    0.5.15 has no ``decode_cuda_graph_bs``: there the sizes are in the log's capture line, which lists what was captured,
    and in ``cuda_graph_config.decode.bs``, which lists what was asked for (srt/managers/scheduler.py, get_internal_state;
    the later key: scheduler_components/internal_state.py). Free memory is in the log alone, in GiB written as GB.
    """
    state = internal_state(info)
    memory = state.get("memory_usage")
    pool = memory.get("token_capacity") if isinstance(memory, dict) else None
    sizes = graph_sizes(info, log)
    return preflight.ServerFacts(
        max_total_tokens=_whole(info.get("max_total_num_tokens") or pool),
        max_running_requests=_whole(
            state.get("effective_max_running_requests_per_dp") or info.get("max_running_requests")
        ),
        context_len=_whole(info.get("context_len") or info.get("context_length")),
        graph_batch_sizes=sizes or None,
        no_graphs_because=recipe.graphs_reason or "",
        graphs_expected=recipe.graphs_reason is None,
        free_bytes=free_bytes(log),
        graph_bytes=graph_bytes(log),
        page_size=_whole(info.get("page_size")) or 1,
    )


def graph_sizes(info: Mapping[str, Any], log: str) -> tuple[int, ...]:
    """The decode batch sizes captured as graphs, ascending; empty where there are none or none are known."""
    state = internal_state(info)
    named = _sizes(state.get("decode_cuda_graph_bs") or info.get("decode_cuda_graph_bs"))
    return named or _logged(log) or _configured(state) or _configured(info)


def internal_state(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first data-parallel rank's own state; empty where there is none."""
    states = info.get("internal_states")
    return states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}


def ranks(info: Mapping[str, Any]) -> int:
    """How many scheduler processes run the model."""
    tp, pp, dp = (_whole(info.get(name)) or 1 for name in ("tp_size", "pp_size", "dp_size"))
    return tp * pp * (1 if info.get("enable_dp_attention") else dp)


def free_bytes(log: str) -> int | None:
    """GPU memory left once everything was allocated: the least of all ranks, in bytes."""
    found = [float(value) for value in _FREE.findall(log)]
    return int(min(found) * 2**30) if found else None


def graph_bytes(log: str) -> int | None:
    """GPU memory that the captured graphs took, all kinds of graphs together: the most of any rank, in bytes."""
    by_rank: dict[str, float] = {}
    for found in _GRAPHS.finditer(log):
        by_rank[found["rank"]] = by_rank.get(found["rank"], 0.0) + float(found["used"])
    return int(max(by_rank.values()) * 2**30) if by_rank else None


def _logged(log: str) -> tuple[int, ...]:
    try:
        return serverlog.parse(log).graph_batch_sizes
    except serverlog.ServerLogError:
        return ()


def _configured(info: Mapping[str, Any]) -> tuple[int, ...]:
    config = info.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, dict) else None
    if not isinstance(decode, dict) or info.get("device") == "cpu":
        return ()
    off = decode.get("backend") == "disabled" or info.get("disable_cuda_graph") or info.get("disable_decode_cuda_graph")
    return () if off else _sizes(decode.get("bs"))


def _sizes(value: Any) -> tuple[int, ...]:
    found = value if isinstance(value, list) else []
    return tuple(sorted({size for item in found if (size := _whole(item)) is not None}))


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
