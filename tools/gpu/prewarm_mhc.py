#!/usr/bin/env python3
"""Compile SGLang's own hyper-connection kernels for every number of splits: one share of them, so that several run at once.

    for part in 0 1 2 3; do python3 tools/gpu/prewarm_mhc.py $part 4 & done; wait

SGLang's prewarm does the same one kernel after the other, 15 to 23 s each (srt/layers/mhc.py, prewarm_mhc_pre); with the
caches filled by this it takes a moment. Needs SGLang 0.5.15.post1 on PYTHONPATH and a Hopper card.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from perfgate.models import v4mini

CHUNK = 8192  # recipes' chunked_prefill_size: the most tokens of one prefill step


def main(part: int, parts: int) -> None:
    import torch
    from sglang.srt.layers import mhc

    config = v4mini.configuration(6)
    streams, width, eps = config["hc_mult"], config["hidden_size"], config["hc_eps"]
    buckets = mhc.get_mhc_pre_token_count_representatives(CHUNK, streams * width)
    outputs = streams * 2 + streams * streams
    fn = torch.zeros(outputs, streams * width, device="cuda")
    scale, base = torch.zeros(3, device="cuda"), torch.zeros(outputs, device="cuda")
    norm = torch.ones(width, dtype=torch.bfloat16, device="cuda")
    for tokens in buckets[part::parts]:
        began = time.monotonic()
        with torch.inference_mode():
            mhc.mhc_pre(
                torch.zeros(tokens, streams, width, dtype=torch.bfloat16, device="cuda"), fn, scale, base,
                config["rms_norm_eps"], eps, eps, 2.0, config["hc_sinkhorn_iters"], 1, 32,
                norm_weight=norm, norm_eps=config["rms_norm_eps"],
            )  # fmt: skip
        torch.cuda.synchronize()
        print(f"{tokens} tokens: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(int(sys.argv[1]), int(sys.argv[2]))
