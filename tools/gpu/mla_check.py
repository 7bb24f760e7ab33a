"""Check the sparse-MLA decode on this machine's GPU against its oracles: ``python tools/gpu/mla_check.py``.

Needs torch, triton and this repository alone. Inputs are the test suite's poisoned ones. One case that fails, or cannot
run, does not stop the others; the exit status is 1 if any did.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
import triton  # noqa: E402
from dsv4_kernels import reference  # noqa: E402
from kit.cache import POISONS, SINKS, DecodeCase, Source, build  # noqa: E402
from kit.compare import assert_decode_close, cosine_difference  # noqa: E402
from kit.decode import decode, name_of, runnable_configurations  # noqa: E402
from kit.rounding import rounding_of  # noqa: E402


def random_source(rng: random.Random, batch: int, page_sizes: tuple[int, ...], widths: tuple[int, ...]) -> Source:
    page_size, topk = rng.choice(page_sizes), rng.choice(widths)
    lengths = tuple(rng.choice([-3, 0, 1, topk, topk + 5, rng.randint(0, topk)]) for _ in range(batch))
    return Source(
        page_size=page_size,
        pages=rng.choice([1, 2, 53, 61, 69]),
        topk=topk,
        lengths=rng.choice([None, lengths]),
        hole=rng.choice([0.0, 0.1, 0.5]),
        holes_at=rng.choice(["anywhere", "front", "middle", "tail"]),
        repeat=rng.choice([0.0, 0.3]),
        pad_bytes=rng.choice([0, 16, 576]),
    )


def random_case(rng: random.Random, seed: int) -> DecodeCase:
    batch = rng.choice([1, 2, 3, 16, 64, 65, 130])
    return DecodeCase(
        batch=batch,
        queries=rng.choice([1, 1, 2, 4]),
        heads=rng.choice([8, 16, 24, 32, 64, 64, 65, 128]),
        main=random_source(rng, batch, (256, 64), (1, 64, 128, 129)),
        extra=rng.choice([None, random_source(rng, batch, (64, 2), (1, 63, 512, 1024, 8192))]),
        sink=rng.choice(SINKS),
        spread=rng.randint(0, 3),
        poison=rng.choice(POISONS),
        strided=frozenset(rng.sample(["q", "indices", "topk_length", "extra_indices", "extra_topk_length"], 2)),
        seed=seed,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="stop drawing cases after this long")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}", flush=True)
    print(f"{'configuration':20} {'splits':>6} {'cases':>5} {'failed':>6} {'cosine':>9} {'lse':>9}  first fault")
    rng = random.Random(options.seed)
    variants = [(None, 0)] + [(config, splits) for config in runnable_configurations() for splits in (1, 2, 7, 64)]
    rows = {variant: [0, 0, 0.0, 0.0, ""] for variant in variants}
    start, seed = time.monotonic(), options.seed
    while time.monotonic() - start < options.seconds:
        seed += 1
        case = random_case(rng, seed)
        inputs = build(case, device)
        exact = reference.sparse_mla_decode(*inputs.arguments())
        rounded = reference.sparse_mla_decode_rounded(*inputs.arguments())
        rounding = rounding_of(inputs)
        for variant in variants:
            row = rows[variant]
            row[0] += 1
            try:
                out, lse = decode(inputs, *variant)
                torch.cuda.synchronize()
                live = exact[1].isfinite()
                row[2] = max(row[2], cosine_difference(out, exact[0]).max().item())
                row[3] = max(row[3], (lse - exact[1])[live].abs().max().item() if live.any() else 0.0)
                assert_decode_close((out, lse), exact, rounding)
                assert_decode_close((out, lse), rounded, rounding)
            except Exception as fault:
                # Every variant's result is wanted, whatever becomes of the others.
                row[1] += 1
                row[4] = row[4] or f"{case}: {type(fault).__name__}: {fault}".replace("\n", " ")[:600]
    failed = 0
    for (config, splits), (cases, faults, cosine, lse_error, first) in rows.items():
        failed += faults
        name = "launcher's choice" if config is None else name_of(config)
        print(f"{name:20} {splits or '-':>6} {cases:5} {faults:6} {cosine:9.2e} {lse_error:9.2e}  {first}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
