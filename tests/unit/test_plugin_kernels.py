"""SGLang's calls, with its own shapes, strides and dtypes, through the hooks into the real kernels (interpreted)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

SCRIPT = """
import torch
from dsv4_kernels import layout, reference
from dsv4_kernels.sglang_plugin.plugin import build
from dsv4_kernels.sglang_plugin.seams import seams_for

torch.manual_seed(0)
version = "0.5.15.post1"
notes = []
hooks = {
    seam.qualname: build(seam, version, lambda patch, rows: notes.append((patch, rows)))
    for seam in seams_for(version, ("sparse_mla", "indexer", "topk"), "sm_90")
}

# deepseek_v4_backend.py:1442: a window of 256-token pages beside compressed rows in pages of 64, -1 past the valid ones
window, compressed = layout.allocate(1, 256), layout.allocate(2, 64)
for cache, tokens in ((window, 128), (compressed, 100)):
    layout.write(cache, torch.arange(tokens), *layout.pack(torch.randn(tokens, 512)))
q = torch.randn(2, 1, 8, 512).bfloat16()
near = torch.full((2, 1, 128), -1, dtype=torch.int32)
near[:, :, :20] = torch.arange(20, dtype=torch.int32)
far = torch.full((2, 1, 512), -1, dtype=torch.int32)
far[:, :, :30] = torch.arange(30, dtype=torch.int32)
near_lengths, far_lengths = (torch.tensor(v, dtype=torch.int32) for v in ([20, 5], [30, 1]))
sink = torch.randn(8)
out, lse = hooks["flash_mla_with_kvcache"](
    q=q, k_cache=window, head_dim_v=512, block_table=None, cache_seqlens=None, tile_scheduler_metadata=None,
    softmax_scale=512**-0.5, is_fp8_kvcache=True, indices=near, topk_length=near_lengths, attn_sink=sink,
    extra_k_cache=compressed, extra_indices_in_kvcache=far, extra_topk_length=far_lengths,
)
want, _ = reference.sparse_mla_decode(
    q, window, near, near_lengths, sink, 512, 512**-0.5, compressed, far, far_lengths
)
# The interpreter cuts bf16 off where a card rounds: one step of 2**-7 at values of about 1.
torch.testing.assert_close(out.float(), want.float(), rtol=2**-7, atol=2**-7)

# indexer.py:722: lengths of [B, 1], eight positional arguments, a cache viewed as [pages, 64, 1, 132]
pages = torch.zeros(3, 64 * 132, dtype=torch.uint8)
pages[:, :8192] = torch.randn(3, 8192).to(torch.float8_e4m3fn).view(torch.uint8)
pages[:, 8192:] = torch.rand(3, 64).view(torch.uint8)
index_q = torch.randn(2, 1, 64, 128).to(torch.float8_e4m3fn)
weights, table = torch.rand(2, 64), torch.tensor([[0, 2], [1, 0]], dtype=torch.int32)
lengths = torch.tensor([[100], [7]], dtype=torch.int32)
cache = pages.view(3, 64, 1, 132)
logits = hooks["fp8_paged_mqa_logits_torch"](index_q, cache, weights, lengths, table, None, 128, False)
scores = reference.paged_mqa_logits(index_q, cache, weights, lengths, table, 128)
for row, length in enumerate((100, 7)):
    torch.testing.assert_close(logits[row, :length], scores[row, :length], rtol=1e-4, atol=1e-4)

# indexer.py:765 and :774: into SGLang's buffers, with a plan that is not needed and with positions
chosen, positions = (torch.full((2, 512), -7, dtype=torch.int32) for _ in range(2))
flat = lengths[:, 0].contiguous()
hooks["topk_transform_512_v2"](logits, flat, table, chosen, 64, torch.zeros(3, 2, dtype=torch.int32))
assert (chosen >= 0).sum(1).tolist() == [100, 7] and not (chosen == -7).any()
hooks["topk_transform_512"](logits, flat, table, chosen, 64, positions)
assert positions[1, :8].tolist() == [0, 1, 2, 3, 4, 5, 6, -1]
assert chosen[1, :7].tolist() == [64 + i for i in range(7)]
assert notes == [("sparse_mla", 2), ("indexer", 2), ("topk", 2), ("topk", 2)]
print("agrees")
"""


@pytest.mark.timeout(200)
def test_sglangs_calls_are_calls_that_the_kernels_take_and_answer_right():
    here = {"TRITON_INTERPRET": "1", "PYTHONPATH": str(REPOSITORY / "kernels"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=os.environ | here, capture_output=True, text=True, timeout=190)
    assert done.stdout.strip() == "agrees", done.stderr[-3000:]
