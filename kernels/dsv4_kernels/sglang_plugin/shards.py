"""Which shard of each parameter this rank holds, from SGLang's parallel layers, told by name so that none is imported.

Everything else (replicated linears, and what a model's own layers hold, as sinks and the hyper-connection's) is whole on
every rank and has to be equal there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

_LINEARS = frozenset({"ColumnParallelLinear", "RowParallelLinear"})


class Shard(NamedTuple):
    """``place`` names the shard, empty for the first and for a whole parameter; ``inputs`` is by how much the matrix whose
    shard it is has more inputs, over which the ranks' products are added up."""

    place: str = ""
    inputs: int = 1


def shards(model: torch.nn.Module) -> dict[str, Shard]:
    """The shard of each parameter of ``model`` that is not a whole one's like, by the parameter's name."""
    found = {}
    for prefix, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            shard = _of(module, name)
            if shard != Shard():
                found[f"{prefix}.{name}".removeprefix(".")] = shard
    return found


def _of(module: Any, name: str) -> Shard:
    kinds = {cls.__name__ for cls in type(module).__mro__}
    if "FusedMoE" in kinds:  # a rank has some of the experts, or a part of each; of w2, of its inputs
        ranks = (module.moe_ep_rank, module.moe_tp_rank)
        return Shard(
            ".".join(map(str, ranks)) if any(ranks) else "", module.moe_tp_size if name.startswith("w2") else 1
        )
    if "VocabParallelEmbedding" in kinds:
        return Shard(str(module.shard_indices.org_vocab_start_index or ""))
    if kinds & _LINEARS:
        group = getattr(module, "tp_group", None)  # from 0.5.22 on, None for a whole one; before, the rank itself
        rank = getattr(module, "tp_rank", 0) if group is None else group.rank_in_group
        whole = module.input_size // module.input_size_per_partition if "RowParallelLinear" in kinds else 1
        return Shard(str(rank or ""), whole)
    return Shard()
