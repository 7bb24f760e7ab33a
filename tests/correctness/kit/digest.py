"""Digests of every kernel's results on fixed inputs. Run as a program it prints them: ``python digest.py DEVICE``."""

from __future__ import annotations

import hashlib
import json
import sys

import torch

from kit import strategies_hc, strategies_indexer, strategies_topk, topk
from kit.cache import DecodeCase, Source, build
from kit.decode import decode
from kit.indexer import logits


def digest(*results: torch.Tensor) -> str:
    """Of shapes and bytes, so that NaN equals itself and -0 does not equal 0."""
    made = hashlib.sha256()
    for result in results:
        made.update(f"{tuple(result.shape)} {result.dtype}".encode())
        made.update(result.contiguous().cpu().view(torch.uint8).numpy().tobytes())
    return made.hexdigest()


def digests(device: torch.device) -> dict[str, str]:
    """By kernel; every call has splits, holes or ties, whose order a race would show."""
    main, extra = Source(256, 2, 70, (70, 33), hole=0.2), Source(2, 69, 70, (65, 2), hole=0.2)
    decoded = decode(build(DecodeCase(2, 1, 16, main, extra, sink="mixed"), device))
    scored = logits(strategies_indexer.build(strategies_indexer.IndexerCase((130, 5)), device), clean=True)
    chosen = topk.run(strategies_topk.build(strategies_topk.TopKCase((1500, 3), pattern="few_values"), device))
    from dsv4_kernels import hc_prenorm

    mixes = hc_prenorm(*strategies_hc.build(strategies_hc.HcCase(tokens=17), device))
    return {
        "sparse_mla_decode": digest(*decoded),
        "paged_mqa_logits": digest(scored),
        "topk_transform": digest(*chosen),
        "hc_prenorm": digest(mixes),
    }


if __name__ == "__main__":
    print(json.dumps(digests(torch.device(sys.argv[1]))))
