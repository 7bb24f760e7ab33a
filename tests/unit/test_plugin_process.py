"""The whole way through SGLang's own plug-in loader and hook registry, in fresh processes, on a pretended card.

SGLang's real modules are patched; only ``sgl_kernel`` (a CUDA library) is a stub with its signature, and the kernels
are functions that say who they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

PRETEND = """
import torch
import dsv4_kernels
from dsv4_kernels.sglang_plugin import plugin
torch.cuda.is_current_stream_capturing = lambda: False
plugin.card_arch = lambda: "sm_90"
plugin.runs_the_model = lambda: True

def topk_transform(scores, seq_lens, page_table, page_size, topk=512, *, out=None, out_raw_indices=None):
    out.fill_(41)

dsv4_kernels.sparse_mla_decode = lambda *args: ("our decode", len(args))
dsv4_kernels.paged_mqa_logits = lambda *args: ("our logits", len(args))
dsv4_kernels.topk_transform = topk_transform
dsv4_kernels.hc_prenorm = lambda x, fn, eps: None
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
"""

CALLS = """
load_plugins()
import inspect, time
import torch
from sglang.srt.layers.attention.dsv4 import indexer
from sglang.srt.models.deepseek_v4 import DeepseekV4DecoderLayer

def decode(**call):  # as deepseek_v4_backend.py:1440 does it
    from sgl_kernel.flash_mla import flash_mla_with_kvcache
    return flash_mla_with_kvcache(**call)

q = torch.zeros(2, 1, 64, 512, dtype=torch.bfloat16)
cache = torch.zeros(1, 256, 1, 584, dtype=torch.uint8)
print(decode(q=q, k_cache=cache, head_dim_v=512, block_table=None, cache_seqlens=None, is_fp8_kvcache=True,
             tile_scheduler_metadata=None, indices=torch.zeros(2, 1, 64)))
index_q = torch.zeros(3, 1, 64, 128)
index_cache = torch.zeros(1, 64, 1, 132, dtype=torch.uint8)
print(indexer.fp8_paged_mqa_logits_torch(index_q, index_cache, None, None, None, None, 64, False))
out = torch.zeros(3, 512, dtype=torch.int32)
indexer.topk_transform_512_v2(torch.zeros(3, 64), None, torch.zeros(3, 1), out, 64, None)
print(out.unique().tolist())
from sglang.jit_kernel.dsv4 import topk
out.zero_()
topk.topk_transform_512(torch.zeros(3, 64), None, torch.zeros(3, 1), out, 64)
print(out.unique().tolist())
print(inspect.unwrap(DeepseekV4DecoderLayer.hc_pre) is not DeepseekV4DecoderLayer.hc_pre)
time.sleep(1.5)
"""

STUB = """
def flash_mla_with_kvcache({parameters}):
    raise AssertionError("SGLang's own decode was called")
"""


def run(tmp_path, script, **environ):
    """Run ``script`` with the entry point, the kernels and a stub of sgl_kernel on the path."""
    subprocess.run(
        [sys.executable, str(REPOSITORY / "tools" / "gpu" / "make_entry_point.py"), str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=30,
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DSV4_", "SGLANG_"))}
    clean |= {"CUDA_VISIBLE_DEVICES": "", "SGLANG_USE_CPU_ENGINE": "1"}
    clean["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(REPOSITORY / "kernels")])
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=clean | environ, capture_output=True, text=True, timeout=280)


def stub(tmp_path, parameters):
    folder = tmp_path / "sgl_kernel"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "flash_mla.py").write_text(STUB.format(parameters=parameters))


FLASH_MLA = (
    "q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata, num_splits=None, softmax_scale=None, "
    "causal=False, descale_q=None, descale_k=None, is_fp8_kvcache=False, indices=None, attn_sink=None, "
    "extra_k_cache=None, extra_indices_in_kvcache=None, topk_length=None, extra_topk_length=None"
)


@pytest.mark.timeout(290)
def test_sglangs_calls_reach_our_kernels_and_are_counted(tmp_path):
    stub(tmp_path, FLASH_MLA)
    counts = tmp_path / "counts.json"
    done = run(
        tmp_path,
        PRETEND + CALLS,
        DSV4_PATCHES="sparse_mla,indexer,topk,hc_prenorm",
        DSV4_COUNTS_FILE=str(counts),
        SGLANG_FP8_PAGED_MQA_LOGITS_TORCH="1",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["('our decode', 10)", "('our logits', 7)", "[41]", "[41]", "True"]
    for patch in ("sparse_mla", "indexer", "topk", "hc_prenorm"):
        assert f"[dsv4_kernels] patch {patch} on sm_90: " in done.stderr
    (path,) = tmp_path.glob("counts.json.*")
    document = json.loads(path.read_text())
    assert document["arch"] == "sm_90"
    calls = {name: sum(c["eager_by_second"].values()) for name, c in document["calls"].items()}
    assert calls == {"sparse_mla": 1, "indexer": 1, "topk": 2}


ATTENTION = """
from sglang.srt.layers.attention import deepseek_v4_backend as backend
if ARCH == "sm_120":
    plugin.card_arch = lambda: ARCH
    backend._is_sm120 = True
load_plugins()
import time
from types import SimpleNamespace
import torch
from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4TokenToKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardMode

def attend(mode, rows):
    pool = object.__new__(DeepSeekV4TokenToKVPool)
    pool.get_swa_key_buffer_radix = lambda layer: torch.zeros(1, 256 * 584, dtype=torch.uint8)
    pool.swa_window_size, pool.swa_kv_pool = 256, SimpleNamespace(kv_cache_total_dim=584)
    core = object.__new__(backend.DSV4AttnMetadata)
    core.swa_page_indices, core.swa_topk_lengths = torch.zeros(rows, 64), torch.ones(rows)
    core.c1_flashmla_metadata = None
    here = SimpleNamespace(mtp_enabled=False, forward_metadata=SimpleNamespace(core_attn_metadata=core),
                           token_to_kv_pool=pool, head_dim_v=512, softmax_scale=1.0)
    q = torch.zeros(rows, 64, 512, dtype=torch.bfloat16)
    return backend.DeepseekV4AttnBackend.forward(
        here, q=q, k=q, v=q, layer=SimpleNamespace(layer_id=0), compress_ratio=0, save_kv_cache=False,
        attn_sink=torch.zeros(64), forward_batch=SimpleNamespace(forward_mode=mode))

for mode, rows in ((ForwardMode.EXTEND, 256), (ForwardMode.EXTEND, 1), (ForwardMode.DECODE, 3)):
    print(tuple(attend(mode, rows).shape))
time.sleep(1.5)
"""


@pytest.mark.timeout(290)
@pytest.mark.parametrize("arch", ["sm_90", "sm_120"])
def test_sglangs_own_backend_prefills_through_the_patched_function_and_only_its_decode_counts_as_one(tmp_path, arch):
    stub(tmp_path, FLASH_MLA)
    counts = tmp_path / "counts.json"
    kernel = "dsv4_kernels.sparse_mla_decode = lambda q, *args: (q, None)\n"
    script = PRETEND + f"ARCH = {arch!r}\n" + kernel + ATTENTION
    environ = {"DSV4_PATCHES": "sparse_mla", "DSV4_COUNTS_FILE": str(counts), "SGLANG_OPT_FLASHMLA_SPARSE_PREFILL": "0"}
    done = run(tmp_path, script, **environ)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["(256, 64, 512)", "(1, 64, 512)", "(3, 64, 512)"]
    (path,) = tmp_path.glob("counts.json.*")
    calls = json.loads(path.read_text())["calls"]["sparse_mla"]
    assert (sum(calls["eager_by_second"].values()), calls["prefill"]) == (1, 2)


REFUSALS = """
HookRegistry.register("sgl_kernel.flash_mla.flash_mla_with_kvcache", lambda *a, **k: None, HookType.REPLACE)
try:
    plugin.hook(("sparse_mla",), "0.5.15.post1", "sm_90", None)
except plugin.PluginError as error:
    print(error)
HookRegistry.reset()
import sgl_kernel.flash_mla
sgl_kernel.flash_mla.flash_mla_with_kvcache = lambda q, k_cache: None
load_plugins()
print("serving")
"""


@pytest.mark.timeout(290)
def test_a_seam_that_another_plug_in_took_or_that_has_another_signature_stops_the_scheduler(tmp_path):
    stub(tmp_path, FLASH_MLA)
    done = run(tmp_path, PRETEND + REFUSALS, DSV4_PATCHES="sparse_mla")
    assert "another plug-in already replaces sgl_kernel.flash_mla.flash_mla_with_kvcache" in done.stdout
    assert done.returncode == 1
    assert "found (q, k_cache)" in done.stderr
    assert "serving" not in done.stdout
