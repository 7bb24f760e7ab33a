"""Invented weights: of a size that lets every kernel reach the answers, and the same numbers in FP8 and in bf16."""

from __future__ import annotations

import math

import pytest
import torch
from dsv4_kernels.sglang_plugin import plugin
from dsv4_kernels.sglang_plugin import scaled_weights as weights
from dsv4_kernels.sglang_plugin.scaled_weights import fill
from dsv4_kernels.sglang_plugin.shards import Shard

FP8 = torch.float8_e4m3fn


def filled(name="layer.proj.weight", shape=(256, 512), dtype=torch.bfloat16, **more):
    parameters = {name: torch.full(shape, math.nan, dtype=torch.float32).to(dtype), **more}
    fill(parameters)
    return parameters


@pytest.mark.parametrize("shape", [(256, 512), (3, 128, 256)])
def test_a_product_keeps_the_size_of_what_it_is_given(shape):
    weight = filled(shape=shape)["layer.proj.weight"].float()
    out = torch.randn(64, shape[-1], generator=torch.Generator().manual_seed(0)) @ weight.reshape(-1, shape[-1]).T
    assert 0.7 < out.std().item() < 1.42  # a power of two beside the exact size


def test_a_weight_is_the_same_number_in_fp8_with_its_scales_and_in_bf16():
    scales = torch.full((2, 4), math.nan)
    quantised = filled(dtype=FP8, **{"layer.proj.weight_scale_inv": scales})
    by_block = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
    assert torch.equal(quantised["layer.proj.weight"].float() * by_block, filled()["layer.proj.weight"].float())
    assert 31 < quantised["layer.proj.weight"].float().std().item() < 33


def test_another_name_or_seed_gives_other_weights_and_the_same_gives_the_same(monkeypatch):
    one, again, other = filled(), filled(), filled("layer.other.weight")
    assert torch.equal(one["layer.proj.weight"], again["layer.proj.weight"])
    assert not torch.equal(one["layer.proj.weight"], other["layer.other.weight"])
    seeded = {"layer.proj.weight": torch.empty(256, 512)}
    fill(seeded, seed=2)
    assert not torch.equal(one["layer.proj.weight"].float(), seeded["layer.proj.weight"])
    monkeypatch.setattr(weights, "CHUNK", 512 * 100)
    in_parts = filled()["layer.proj.weight"].float()
    assert torch.isfinite(in_parts).all()
    assert len(torch.unique(in_parts, dim=0)) == 256


def test_the_numbers_do_not_depend_on_torchs_default_dtype():
    names = ("layer.proj.weight", "layer.attn_sink")
    shapes = ((64, 128), (640,))

    def drawn():
        parameters = {name: torch.empty(shape, dtype=torch.float32) for name, shape in zip(names, shapes, strict=True)}
        fill(parameters)
        return parameters

    usual = drawn()
    torch.set_default_dtype(torch.bfloat16)  # under which SGLang loads a model
    try:
        loaded = drawn()
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(usual[name], loaded[name]) for name in names)


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_each_shard_of_a_matrix_has_numbers_of_its_own_and_the_first_those_of_a_whole_one(dtype):
    def drawn(place):
        parameters = {"layer.proj.weight": torch.empty(256, 512).to(dtype)}
        fill(parameters, split={"layer.proj.weight": Shard(place)})
        return parameters["layer.proj.weight"].float()

    whole = filled(dtype=dtype)["layer.proj.weight"].float()
    assert torch.equal(drawn(""), whole)
    assert torch.equal(drawn("1"), drawn("1"))
    correlation = torch.corrcoef(torch.stack([drawn("1").flatten(), whole.flatten()]))[0, 1]
    assert abs(correlation) < 0.02


def test_a_product_that_ranks_add_up_keeps_the_size_of_what_it_is_given():
    given = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0))
    out = torch.zeros(64, 256)
    for rank in range(4):
        shard = {
            "layer.proj.weight": torch.empty(256, 256, dtype=FP8),
            "layer.proj.weight_scale_inv": torch.empty(2, 2),
        }
        place = Shard(str(rank or ""), inputs=4)
        fill(shard, split=dict.fromkeys(shard, place))
        weight = shard["layer.proj.weight"].float() * shard["layer.proj.weight_scale_inv"][0, 0]
        out += given[:, 256 * rank : 256 * (rank + 1)] @ weight.T
    assert 0.95 < out.std().item() < 1.05


def test_vectors_are_of_the_size_that_a_model_has():
    given = {
        "layers.0.input_layernorm.weight": torch.full((8,), math.nan),
        "layers.0.self_attn.q_norm.weight": torch.full((8,), math.nan),
        "layers.0.self_attn.kv_norm.weight": torch.full((8,), math.nan),
        "layers.0.self_attn.indexer.compressor.norm.weight": torch.full((8,), math.nan),
        "layers.0.hc_attn_scale": torch.full((3,), math.nan),
        "layers.0.hc_attn_base": torch.full((24,), math.nan),
        "layers.0.mlp.gate.e_score_correction_bias": torch.full((256,), math.nan),
        "layers.0.self_attn.attn_sink": torch.full((640,), math.nan),
        "layers.0.self_attn.attn_mqa.k_scale": torch.tensor(-1.0),
        "layers.0.mlp.tid2eid": torch.zeros(4, 6, dtype=torch.int32),
        "model.embed_tokens.weight": torch.full((640, 64), math.nan),
    }
    fill(given)
    norm, q_norm, kv_norm, compressed, scale, base, bias, sink, kv, ids, embed = given.values()
    assert norm.eq(1).all()
    assert q_norm.eq(1).all()
    assert kv_norm.eq(2).all()
    assert compressed.eq(2).all()
    assert scale.eq(0.5).all()
    assert base.eq(0).all()
    assert 25 < bias.std().item() < 40
    assert 0.9 < sink.std().item() < 1.1
    assert kv.item() == -1.0  # negative: SGLang then takes 1, and refuses a 0
    assert ids.eq(0).all()
    assert 0.95 < embed.std().item() < 1.05


@pytest.mark.parametrize("layer", range(3, 43))
def test_a_router_sends_every_token_to_the_same_experts_whatever_is_rounded(layer):
    """Its scores, sqrt(softplus(x)) of random x, decide between two experts only where their biases are that close."""
    name = f"model.layers.{layer}.mlp.gate.e_score_correction_bias"
    bias = filled(name, (256,), torch.float32)[name]
    scores = torch.nn.functional.softplus(torch.randn(2000, 256, generator=torch.Generator().manual_seed(layer))).sqrt()
    chosen = torch.topk(scores + bias, 6).indices.sort().values
    noise = torch.randn(scores.shape, generator=torch.Generator().manual_seed(layer + 1))
    rounded = torch.topk(scores * (1 + 0.005 * noise) + bias, 6).indices.sort().values
    assert (chosen == rounded).all(-1).float().mean() > 0.99, "0.82 without a bias"
    assert scores.gather(-1, chosen).std() > 0.1, "their weights still depend on the token"


def test_a_scale_without_its_weight_is_an_error():
    with pytest.raises(ValueError, match=r"mlp\.w2_weight, which the model does not have"):
        fill({"mlp.w2_weight_scale_inv": torch.empty(1, 1)})


@pytest.mark.parametrize("version", ["0.5.15.post1", "0.5.23"])
def test_the_patch_takes_the_place_of_sglangs_dummy_weights_and_is_counted(version):
    (seam,) = plugin.reached_seams("scaled_weights", version, "sm_90", lambda name: False)
    notes = []
    model = torch.nn.Linear(64, 32, bias=False)
    before = model.weight.detach().clone()
    plugin.build(seam, version, lambda patch, rows: notes.append((patch, rows)))(model)
    assert notes == [("scaled_weights", 0)]
    assert not torch.equal(model.weight, before)
