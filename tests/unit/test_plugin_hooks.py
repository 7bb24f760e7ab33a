"""What SGLang's calls turn into: shapes refused, arguments handed on, outputs written, calls counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from dsv4_kernels.sglang_plugin.broken import broken
from dsv4_kernels.sglang_plugin.hc_combine import combine_reference
from dsv4_kernels.sglang_plugin.hooks import (
    fallback_decode_hook,
    fallback_indexer_hook,
    indexer_hook,
    prewarm_hook,
    sparse_decode_hook,
    topk_hook,
)
from dsv4_kernels.sglang_plugin.hyper_connection import hc_pre_hook
from dsv4_kernels.sglang_plugin.layout import UnsupportedLayout
from dsv4_kernels.sglang_plugin.seams import seams_for

REPOSITORY = Path(__file__).parents[2]


class Recorder:
    """A kernel that keeps what it was called with."""

    def __init__(self, result=None):
        self.calls = []
        self.result = result

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.result


class Notes(list):
    def __call__(self, patch, rows):
        self.append((patch, rows))


def names(version, patch, suffix=""):
    return next(s.parameters for s in seams_for(version, (patch,), "sm_90") if s.target.endswith(suffix))


def decode_call(batch=3, **changes):
    """The call of deepseek_v4_backend.py:1442 (0.5.15.post1)."""
    return {
        "q": torch.zeros(batch, 1, 64, 512, dtype=torch.bfloat16),
        "k_cache": torch.zeros(2, 256, 1, 584, dtype=torch.uint8),
        "head_dim_v": 512,
        "block_table": None,
        "cache_seqlens": None,
        "tile_scheduler_metadata": object(),
        "softmax_scale": 0.25,
        "is_fp8_kvcache": True,
        "indices": torch.zeros(batch, 1, 128, dtype=torch.int32),
        "topk_length": torch.ones(batch, dtype=torch.int32),
        "attn_sink": torch.zeros(64),
        "extra_k_cache": torch.zeros(2, 64, 1, 584, dtype=torch.uint8),
        "extra_indices_in_kvcache": torch.zeros(batch, 1, 512, dtype=torch.int32),
        "extra_topk_length": torch.ones(batch, dtype=torch.int32),
        **changes,
    }


def test_decode_hands_every_argument_on_and_counts_the_rows():
    kernel, notes = Recorder(("out", "lse")), Notes()
    call = decode_call()
    assert sparse_decode_hook(kernel, notes, names("0.5.15.post1", "sparse_mla"))(**call) == ("out", "lse")
    ((args, kwargs),) = kernel.calls
    wanted = ("q", "k_cache", "indices", "topk_length", "attn_sink", "head_dim_v", "softmax_scale")
    extra = ("extra_k_cache", "extra_indices_in_kvcache", "extra_topk_length")
    assert all(got is call[name] for got, name in zip(args, (*wanted, *extra), strict=True))
    assert kwargs == {}
    assert notes == [("sparse_mla", 3)]


def test_decode_without_an_extra_cache_and_without_a_scale():
    kernel = Recorder()
    call = decode_call(softmax_scale=None)
    for name in ("extra_k_cache", "extra_indices_in_kvcache", "extra_topk_length"):
        del call[name]
    sparse_decode_hook(kernel, Notes(), names("0.5.15.post1", "sparse_mla"))(**call)
    args = kernel.calls[0][0]
    assert args[6] == 512**-0.5
    assert args[7:] == (None, None, None)


def test_decode_understands_positional_arguments():
    kernel = Recorder()
    call = decode_call()
    order = names("0.5.15.post1", "sparse_mla")
    positional = [call.pop(name) for name in order[:6]]
    sparse_decode_hook(kernel, Notes(), order)(*positional, **call)
    assert kernel.calls[0][0][0] is positional[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_legacy": False}, "use_legacy"),
        ({"kv_format": "V41_NEW"}, "kv_format"),
        ({"k_cache": torch.zeros(2, 256, 1, 528, dtype=torch.uint8)}, "bytes a token is 528"),
        ({"extra_k_cache": torch.zeros(2, 64, 1, 656, dtype=torch.uint8)}, "extra_k_cache's bytes a token is 656"),
        ({"q": torch.zeros(3, 1, 64, 576)}, "head dimension is 576"),
        ({"block_table": torch.zeros(1)}, "block_table"),
        ({"causal": True}, "causal"),
        ({"is_fp8_kvcache": False}, "is_fp8_kvcache"),
        ({"indices": None}, "no indices"),
    ],
)
def test_decode_of_any_other_layout_is_refused_before_the_kernel_runs(changes, message):
    kernel, notes = Recorder(), Notes()
    with pytest.raises(UnsupportedLayout, match=message):
        sparse_decode_hook(kernel, notes, names("0.5.23", "sparse_mla"))(**decode_call(**changes))
    assert kernel.calls == []
    assert notes == []


def test_the_fallback_calls_the_sm_120_decode_with_the_keywords_that_it_reads():
    kernel, notes = Recorder(("out", "lse")), Notes()
    call = decode_call()
    fallback_decode_hook(kernel, notes, names("0.5.15.post1", "fallback_sparse_mla"))(**call)
    ((args, kwargs),) = kernel.calls
    assert args == ()
    left_out = {"block_table", "cache_seqlens", "tile_scheduler_metadata", "is_fp8_kvcache"}
    assert kwargs.keys() == call.keys() - left_out
    assert all(kwargs[name] is call[name] for name in kwargs)
    assert notes == [("fallback_sparse_mla", 3)]


def indexer_call(batch=3, lengths=(3, 1)):
    """The call of indexer.py:722 (0.5.15.post1): eight positional arguments."""
    return (
        torch.zeros(batch, 1, 64, 128, dtype=torch.float8_e4m3fn),
        torch.zeros(4, 64, 1, 132, dtype=torch.uint8),
        torch.zeros(batch, 64),
        torch.ones(lengths, dtype=torch.int32),
        torch.zeros(batch, 2, dtype=torch.int32),
        object(),
        128,
        False,
    )


def test_the_indexer_drops_the_schedule_and_keeps_the_rest_in_order():
    kernel, notes = Recorder("logits"), Notes()
    call = indexer_call()
    assert indexer_hook(kernel, notes)(*call) == "logits"
    args = kernel.calls[0][0]
    assert all(got is want for got, want in zip(args, (*call[:5], *call[6:]), strict=True))
    assert notes == [("indexer", 3)]


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (0, (torch.zeros(1), torch.zeros(1)), "FP4"),
        (0, torch.zeros(3, 2, 64, 128), "query tokens a row is 2"),
        (0, torch.zeros(3, 1, 64, 64), "head dimension is 64"),
        (1, torch.zeros(4, 64, 1, 68, dtype=torch.uint8), "bytes a token is 68"),
        (1, torch.zeros(4, 256, 1, 132, dtype=torch.uint8), "page size is 256"),
    ],
)
def test_an_indexer_of_another_layout_is_refused(position, value, message):
    call = list(indexer_call())
    call[position] = value
    with pytest.raises(UnsupportedLayout, match=message):
        indexer_hook(Recorder(), Notes())(*call)


def test_the_indexer_fallback_passes_lengths_of_one_column_on():
    kernel, notes = Recorder("logits"), Notes()
    call = indexer_call()
    assert fallback_indexer_hook(kernel, notes)(*call) == "logits"
    assert kernel.calls[0][0] == call
    assert notes == [("fallback_indexer", 3)]


def select(scores, seq_lens, page_table, page_size, topk=512, *, out=None, out_raw_indices=None):
    """A top-k of a few lines: positions of the best, by score and then position, and their cache indices."""
    raw = torch.full((scores.shape[0], topk), -1, dtype=torch.int32)
    paged = raw.clone()
    for row, length in enumerate(seq_lens.tolist()):
        best = torch.argsort(scores[row, :length], descending=True, stable=True)[:topk]
        raw[row, : len(best)] = best.int()
        paged[row, : len(best)] = page_table[row, best // page_size] * page_size + (best % page_size).int()
    if out_raw_indices is not None:
        out_raw_indices.copy_(raw)
    return paged if out is None else out.copy_(paged)


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(7)
    scores = torch.rand(2, 12, generator=generator)
    lengths = torch.tensor([3, 11], dtype=torch.int32)
    table = torch.tensor([[5, 9, 2], [7, 1, 8]], dtype=torch.int32)
    return scores, lengths, table


def test_top_k_writes_into_sglangs_buffer(rows):
    scores, lengths, table = rows
    out = torch.full((2, 6), 77, dtype=torch.int32)
    notes = Notes()
    result = topk_hook(select, notes, names("0.5.15.post1", "topk", "512"))(scores, lengths, table, out, 4, None)
    assert result is None
    assert torch.equal(out, select(scores, lengths, table, 4, 6))
    assert notes == [("topk", 2)]


def test_top_k_of_the_second_version_takes_a_plan(rows):
    scores, lengths, table = rows
    out = torch.full((2, 6), 77, dtype=torch.int32)
    topk_hook(select, Notes(), names("0.5.15.post1", "topk", "v2"))(scores, lengths, table, out, 4, torch.zeros(3, 2))
    assert torch.equal(out, select(scores, lengths, table, 4, 6))


def test_top_k_writes_positions_too_where_they_are_wanted(rows):
    scores, lengths, table = rows
    out, raw = (torch.full((2, 6), 77, dtype=torch.int32) for _ in range(2))
    topk_hook(select, Notes(), names("0.5.15.post1", "topk", "512"))(scores, lengths, table, out, 4, raw)
    assert torch.equal(out, select(scores, lengths, table, 4, 6))
    assert raw[0].tolist()[3:] == [-1, -1, -1]
    assert torch.equal(raw[0, :3], torch.argsort(scores[0, :3], descending=True).int())


def test_top_k_without_a_page_table_is_refused(rows):
    scores, lengths, _ = rows
    with pytest.raises(UnsupportedLayout, match="page table"):
        topk_hook(select, Notes(), names("0.5.23", "topk", "v2"))(scores, lengths, None, torch.zeros(2, 6), 1, None)


HC, HIDDEN = 4, 64


def prenorm(x, fn, eps):
    """SGLang's fp32 branch, deepseek_v4.py:1215."""
    flat = x.float()
    return torch.nn.functional.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)


def sinkhorn(mixes, scale, base, mult, iterations, eps):
    """SGLang's hc_split_sinkhorn (mhc.py:69) in torch, for the shapes that it gives back."""
    b, s, _ = mixes.shape
    pre = torch.sigmoid(mixes[..., :mult] * scale[0] + base[:mult]) + eps
    post = 2 * torch.sigmoid(mixes[..., mult : 2 * mult] * scale[1] + base[mult : 2 * mult])
    comb = (mixes[..., 2 * mult :] * scale[2] + base[2 * mult :]).view(b, s, mult, mult).softmax(-1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return pre, post, comb


@pytest.fixture
def layer():
    return SimpleNamespace(hc_mult=HC, hc_sinkhorn_iters=20, hc_eps=1e-6, rms_norm_eps=1e-6)


@pytest.fixture
def hc_inputs():
    torch.manual_seed(3)
    x = torch.randn(5, HC, HIDDEN).bfloat16()
    return x, torch.randn(24, HC * HIDDEN) * 0.02, torch.rand(3), torch.randn(24) * 0.1


def test_hc_pre_agrees_with_sglangs_own_fp32_branch(layer, hc_inputs):
    x, fn, scale, base = hc_inputs
    notes = Notes()
    y, post, comb, fused = hc_pre_hook(prenorm, sinkhorn, combine_reference, notes)(layer, x, fn, scale, base)
    mixes = prenorm(x.flatten(1), fn, 1e-6).unsqueeze(1)
    pre, want_post, want_comb = sinkhorn(mixes, scale, base, HC, 20, 1e-6)
    want = (pre.squeeze(1).unsqueeze(-1) * x.flatten(1).float().view(x.shape)).sum(dim=1).to(x.dtype)
    assert fused is False
    assert torch.equal(y, want)
    assert torch.equal(post, want_post.squeeze(1))
    assert torch.equal(comb, want_comb.squeeze(1))
    assert (post.shape, comb.shape) == ((5, HC), (5, HC, HC))
    assert notes == [("hc_prenorm", 5)]


def test_hc_pre_applies_the_norm_where_one_is_given_and_says_so(layer, hc_inputs):
    x, fn, scale, base = hc_inputs
    weight = torch.rand(HIDDEN).bfloat16()
    norm = SimpleNamespace(weight=torch.nn.Parameter(weight), variance_epsilon=1e-5)
    method = hc_pre_hook(prenorm, sinkhorn, combine_reference, Notes())
    plain, *_ = method(layer, x, fn, scale, base)
    y, _, _, fused = method(layer, x, fn, scale, base, norm=norm)
    value = plain.float()
    want = value * torch.rsqrt(value.square().mean(-1, keepdim=True) + 1e-5) * weight.float()
    assert fused is True
    assert torch.equal(y, want.bfloat16())


def test_hc_pre_of_no_tokens_launches_nothing(layer):
    method = hc_pre_hook(Recorder(), Recorder(), Recorder(), Notes())
    fn = torch.zeros(24, HC * HIDDEN)
    y, post, comb, fused = method(layer, torch.zeros(0, HC, HIDDEN).bfloat16(), fn, None, None)
    assert (y.shape, post.shape, comb.shape, fused) == ((0, HIDDEN), (0, HC), (0, HC, HC), False)
    assert (y.dtype, post.dtype) == (torch.bfloat16, torch.float32)


def test_hc_pre_of_another_number_of_streams_is_refused(layer):
    with pytest.raises(UnsupportedLayout, match="streams is 2"):
        hc_pre_hook(Recorder(), Recorder(), Recorder(), Notes())(layer, torch.zeros(3, 2, 8), None, None, None)


COMBINE = """
import torch
from dsv4_kernels.sglang_plugin.broken import broken
from dsv4_kernels.sglang_plugin.hc_combine import combine, combine_reference
torch.manual_seed(0)
for rows, hidden in ((1, 64), (3, 96), (2, 4096)):
    x = torch.randn(rows, 6, hidden).bfloat16()[:, 1:5]
    pre = torch.rand(rows, 8)[:, 2:6]
    for weight in (None, torch.randn(hidden).bfloat16(), torch.randn(hidden)):
        got, want = combine(x, pre, weight, 1e-6), combine_reference(x, pre, weight, 1e-6)
        # The interpreter cuts a bf16 off where a card rounds it: at most one step (2**-7) for each rounding, of
        # which the norm adds a second.
        rtol = 2**-7 if weight is None else 2**-6
        torch.testing.assert_close(got.float(), want.float(), rtol=rtol, atol=1e-6)
for bad in ((x.float(), pre), (x, pre.bfloat16()), (x.transpose(1, 2), pre)):
    try:
        combine(*bad, None, 0.0)
    except ValueError as error:
        continue
    raise AssertionError("taken: " + str(bad[0].dtype))
print("agrees")
"""


@pytest.mark.timeout(130)
def test_the_combine_kernel_agrees_with_its_reference_under_the_interpreter():
    """In a process of its own, since Triton reads TRITON_INTERPRET when a kernel is defined."""
    here = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(REPOSITORY / "kernels"), "CUDA_VISIBLE_DEVICES": ""}
    env = os.environ | here
    done = subprocess.run([sys.executable, "-c", COMBINE], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "agrees", done.stderr[-2000:]


def test_the_prewarm_runs_sglangs_own_after_a_dummy_load_and_leaves_other_models_alone():
    prewarm, notes = Recorder(), Notes()
    model = SimpleNamespace(_prewarm_mhc_kernels=prewarm)
    assert prewarm_hook("_prewarm_mhc_kernels", notes)(model, "loader", model_config=None) is None
    assert len(prewarm.calls) == 1
    assert notes == [("prewarm", 0)]
    prewarm_hook("_prewarm_mhc_kernels", notes)(SimpleNamespace(), "loader")
    assert len(notes) == 1


@pytest.mark.parametrize("patch", ["sparse_mla", "indexer", "topk", "hc_prenorm"])
def test_a_patch_broken_on_purpose_keeps_its_shapes_and_changes_its_numbers(patch):
    right = torch.arange(1.0, 7.0).view(2, 3)

    def kernel(*args, out=None, out_raw_indices=None):
        if patch == "topk":
            return out.copy_(right)
        return (right, "lse") if patch == "sparse_mla" else right

    keywords = {"out": torch.zeros(2, 3)} if patch == "topk" else {}
    wrong = broken(patch, kernel)(right, **keywords)
    if patch == "sparse_mla":
        assert wrong[1] == "lse"
        wrong = wrong[0]
    assert wrong.shape == right.shape
    assert not torch.equal(wrong, right)
