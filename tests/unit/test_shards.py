"""Which shard of a weight a rank holds: read from SGLang's layers as both ends of the supported range have them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from dsv4_kernels.sglang_plugin.scaled_weights import scaled_weights_hook
from dsv4_kernels.sglang_plugin.shards import Shard, shards
from sglang_wheels import WheelSource, wheel

REPOSITORY = Path(__file__).parents[2]


class Layer(torch.nn.Module):
    def __init__(self, names=("weight",), **attributes):
        super().__init__()
        for name in names:
            setattr(self, name, torch.nn.Parameter(torch.zeros(8, 16)))
        for name, value in attributes.items():
            setattr(self, name, value)


class ReplicatedLinear(Layer): ...


class ColumnParallelLinear(Layer): ...


class MergedColumnParallelLinear(ColumnParallelLinear): ...


class RowParallelLinear(Layer): ...


class VocabParallelEmbedding(Layer): ...


class FusedMoE(Layer): ...


def group(rank, size=2):
    return SimpleNamespace(rank_in_group=rank, world_size=size)


ROW = {"input_size": 32, "input_size_per_partition": 16}


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (ColumnParallelLinear(tp_rank=1, tp_size=2), Shard("1")),  # to 0.5.21
        (ColumnParallelLinear(tp_rank=0, tp_size=2), Shard()),
        (MergedColumnParallelLinear(tp_group=group(1)), Shard("1")),  # from 0.5.22 on
        (ColumnParallelLinear(tp_group=group(0)), Shard()),
        (ColumnParallelLinear(tp_group=None), Shard()),
        (RowParallelLinear(tp_rank=1, tp_size=2, **ROW), Shard("1", 2)),
        (RowParallelLinear(tp_group=group(0), **ROW), Shard("", 2)),
        (RowParallelLinear(tp_group=None, input_size=16, input_size_per_partition=16), Shard()),
        (VocabParallelEmbedding(shard_indices=SimpleNamespace(org_vocab_start_index=320)), Shard("320")),
        (VocabParallelEmbedding(shard_indices=SimpleNamespace(org_vocab_start_index=0)), Shard()),
        (ReplicatedLinear(tp_rank=1, tp_group=group(1)), Shard()),
        (Layer(tp_rank=1), Shard()),  # a layer's own parameters, as sinks and the hyper-connection's
    ],
)
def test_a_layers_shard_is_known_in_both_forms(layer, expected):
    model = torch.nn.Sequential(layer)
    assert shards(model) == ({"0.weight": expected} if expected != Shard() else {})


def test_experts_are_split_by_expert_and_within_one():
    ranks = {"moe_ep_rank": 1, "moe_tp_rank": 1, "moe_tp_size": 4}
    names = ("w13_weight", "w2_weight", "w2_weight_scale_inv")
    found = shards(FusedMoE(names, **ranks))
    assert found == {"w13_weight": Shard("1.1"), "w2_weight": Shard("1.1", 4), "w2_weight_scale_inv": Shard("1.1", 4)}
    first = shards(FusedMoE(names, **(ranks | {"moe_ep_rank": 0, "moe_tp_rank": 0})))
    assert {name: shard.place for name, shard in first.items()} == {"w2_weight": "", "w2_weight_scale_inv": ""}


def test_two_ranks_of_one_model_share_what_is_not_split_and_nothing_else():
    def rank(number):
        model = torch.nn.ModuleDict(
            {"gate": ReplicatedLinear(), "up": ColumnParallelLinear(tp_rank=number), "own": Layer(("attn_sink",))}
        )
        scaled_weights_hook(lambda patch, rows: None)(model)
        return {name: value.detach() for name, value in model.named_parameters()}

    zero, one = rank(0), rank(1)
    equal = {name for name in zero if torch.equal(zero[name], one[name])}
    assert equal == {"gate.weight", "own.attn_sink"}


HOMES = {
    "sglang.srt.layers.linear": {
        "RowParallelLinear": {"input_size_per_partition"},
        "LinearBase": {"input_size"},
    },
    "sglang.srt.layers.vocab_parallel_embedding": {"VocabParallelEmbedding": {"shard_indices"}},
    "sglang.srt.layers.moe.fused_moe_triton.layer": {"FusedMoE": {"moe_ep_rank", "moe_tp_rank", "moe_tp_size"}},
}


def assigned(source: str, name: str) -> set[str]:
    """Attributes of ``self`` that the methods of a class set."""
    (found,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)
    return {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    }


@pytest.mark.timeout(330)
@pytest.mark.parametrize("version", ["0.5.15.post1", "0.5.23"])
def test_the_layers_of_the_real_wheels_have_what_is_read(version):
    read = WheelSource(wheel(version))
    for home, classes in HOMES.items():
        for name, attributes in classes.items():
            assert attributes <= assigned(read(home) or "", name), f"{home}.{name}"
    linear = read("sglang.srt.layers.linear") or ""
    for name in ("ColumnParallelLinear", "RowParallelLinear"):
        assert {"tp_rank", "tp_group"} & assigned(linear, name)
    assert not {"tp_rank", "tp_group"} & assigned(linear, "ReplicatedLinear")


REAL = """
import json, torch
from sglang.srt.layers.linear import ColumnParallelLinear, ReplicatedLinear, RowParallelLinear
from dsv4_kernels.sglang_plugin.shards import shards
split = {"bias": False, "tp_rank": 1, "tp_size": 2}
model = torch.nn.ModuleDict({
    "column": ColumnParallelLinear(64, 32, **split),
    "row": RowParallelLinear(64, 32, **split),
    "whole": ReplicatedLinear(64, 32, bias=False),
})
print(json.dumps(shards(model)))
"""


@pytest.mark.timeout(290)
def test_sglangs_own_layers_are_told_apart():
    env = os.environ | {
        "SGLANG_USE_CPU_ENGINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(REPOSITORY / "kernels"),
    }
    done = subprocess.run([sys.executable, "-c", REAL], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == {"column.weight": ["1", 1], "row.weight": ["1", 2]}
