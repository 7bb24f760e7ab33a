"""Check, then time, variants of the sparse-MLA decode on this machine's GPU: ``python tools/gpu/mla_sweep.py``.

128 window rows and 512 extra rows of 64 heads (options change them). A time is the median of CUDA-graph replays, each
on other inputs than the last and with the L2 flushed before it. A variant's time is printed only if its output was
right. FlashMLA (sgl_kernel) is timed on the same inputs where it can be imported.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels"), str(ROOT / "tests" / "correctness")]

import torch  # noqa: E402
from dsv4_kernels import reference  # noqa: E402
from dsv4_kernels.card import card_for  # noqa: E402
from dsv4_kernels.sparse_mla import launch  # noqa: E402
from dsv4_kernels.sparse_mla_table import HOPPER, DecodeConfig, choose, name_of, split_count  # noqa: E402
from kit.cache import DecodeCase, DecodeInputs, Source, build  # noqa: E402
from kit.compare import OUTPUT_ROUNDING, assert_decode_close  # noqa: E402
from kit.rounding import rounding_of  # noqa: E402

CONFIGS = [
    DecodeConfig(block_h, block_n, num_warps, num_stages)
    for block_h, block_n, num_warps, num_stages in [
        (64, 64, 8, 5), (64, 32, 8, 5), (64, 32, 8, 7), (16, 32, 4, 5), (16, 64, 4, 5), (32, 32, 8, 5), (32, 32, 4, 5),
        (64, 64, 8, 2), (16, 32, 8, 5), (16, 16, 4, 5), (16, 64, 8, 5), (32, 64, 8, 5), (64, 16, 8, 5),
    ]
] + [HOPPER]  # fmt: skip
INPUTS = 8  # sets of inputs that replays rotate over


def make_inputs(batch: int, heads: int, lanes: tuple[int, int], device: torch.device) -> list[DecodeInputs]:
    """Rows at random slots of caches several times as large as what a call reads."""
    window, extra = lanes
    case = DecodeCase(
        batch=batch,
        queries=1,
        heads=heads,
        main=Source(256, max(4, 2 * batch * window // 256), window, (window,) * batch),
        extra=Source(64, max(16, 2 * batch * extra // 64), extra, (extra,) * batch) if extra else None,
        spread=1,
    )
    first = build(case, device)
    made = [first]
    for seed in range(1, INPUTS):
        rng = torch.Generator(device=device).manual_seed(seed)
        roll = torch.randperm(batch, generator=rng, device=device)
        made.append(
            first.replace(
                q=torch.randn(first.q.shape, generator=rng, device=device).bfloat16(),
                k_cache=_copy(first.k_cache),
                indices=first.indices[roll].contiguous(),
                extra_k_cache=None if not extra else _copy(first.extra_k_cache),
                extra_indices=None if not extra else first.extra_indices[roll].contiguous(),
            )
        )
    return made


def _copy(cache: torch.Tensor) -> torch.Tensor:
    """A copy with the physical page stride kept, padding included."""
    flat = cache.as_strided((cache.shape[0] * cache.stride(0),), (1,)).clone()
    return flat.as_strided(cache.shape, cache.stride())


def time_us(calls: list[Callable[[], object]], replays: int = 40) -> float:
    """Median over cold graph replays of one call each, in microseconds."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graphs = []
    for call in calls:
        graph = torch.cuda.CUDAGraph()
        # On the stream that is warm: what a call keeps for its stream is there, as it is for a server's.
        with torch.cuda.graph(graph, stream=side):
            call()
        graphs.append(graph)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for graph in graphs:
        graph.replay()
    events = []
    for _, graph in zip(range(replays), itertools.cycle(graphs), strict=False):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) * 1e3 for begin, end in events)


def flash_mla(inputs: DecodeInputs) -> Callable[[], tuple[torch.Tensor, torch.Tensor]] | None:
    """FlashMLA on the same inputs, or None where it is not installed or takes another number of heads."""
    try:
        from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata
    except ImportError as fault:
        print(f"FlashMLA not importable: {fault}")
        return None
    if inputs.q.shape[2] not in (64, 128):
        return None
    fp8 = torch.float8_e4m3fn
    metadata = get_mla_metadata()[0]
    extra = {}
    if inputs.extra_k_cache is not None:
        extra = {
            "extra_k_cache": inputs.extra_k_cache.view(fp8),
            "extra_indices_in_kvcache": inputs.extra_indices,
            "extra_topk_length": inputs.extra_topk_length,
        }
    return lambda: flash_mla_with_kvcache(
        q=inputs.q, k_cache=inputs.k_cache.view(fp8), block_table=None, cache_seqlens=None, head_dim_v=512,
        tile_scheduler_metadata=metadata, softmax_scale=inputs.softmax_scale, is_fp8_kvcache=True,
        indices=inputs.indices, topk_length=inputs.topk_length, attn_sink=inputs.attn_sink, **extra,
    )  # fmt: skip


def splits_to_try(config: DecodeConfig, batch: int, heads: int, lanes: int, sms: int) -> list[int]:
    tiles = -(-lanes // config.block_n)
    fill = sms / (batch * -(-heads // config.block_h))
    wanted = {max(1, min(tiles, 64, int(fill * share))) for share in (1.0, 2.0)} | {1 if batch >= 64 else 2}
    # Splits that leave the same longest split do the same work in more pieces.
    return sorted({-(-tiles // -(-tiles // splits)) for splits in wanted})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", default="1,16,64,128")
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--lanes", default="128,512", help="window rows and extra rows")
    parser.add_argument("--seconds", type=float, default=85, help="stop starting variants after this long")
    parser.add_argument("--only", default="", help="part of a configuration's name")
    options = parser.parse_args()
    device = torch.device("cuda")
    lanes = tuple(int(part) for part in options.lanes.split(","))
    card, sms = card_for(device)
    start = time.monotonic()
    batches = [int(part) for part in options.batches.split(",")]
    print(f"{torch.cuda.get_device_name()}: {options.heads} heads, {lanes[0]}+{lanes[1]} rows, us, cold L2", flush=True)
    prepared, table, peers = {}, {}, {}
    for batch in batches:
        inputs = make_inputs(batch, options.heads, lanes, device)
        prepared[batch] = (inputs, reference.sparse_mla_decode(*inputs[0].arguments()), rounding_of(inputs[0]))
        try:
            calls = [flash_mla(each) for each in inputs]
            if calls[0] is not None:
                out, _ = calls[0]()
                _, expected, rounding = prepared[batch]
                # FlashMLA divides by the sum of the weights before they are rounded: one more rounding of the output.
                assert_decode_close((out, expected[1]), expected, rounding, 2 * OUTPUT_ROUNDING)
                peers[batch] = time_us(calls)
        except Exception as fault:
            print(f"B={batch} FlashMLA: {type(fault).__name__}: {str(fault)[:300]}")
        rule = choose(card.name, batch, options.heads)
        table[batch] = (rule.config, split_count(rule, batch, options.heads, sum(lanes), sms))
    print("FlashMLA".ljust(28) + " ".join(f"B={batch}: {us:.1f}" for batch, us in peers.items()), flush=True)

    tuned = [table[batch][0] for batch in batches]
    configs = [*tuned, *(replace(config, pdl=True) for config in tuned), *CONFIGS]
    configs = [config for config in dict.fromkeys(configs) if options.only in name_of(config)]
    best: dict[int, tuple[float, str]] = {}
    for config in configs:
        cells = []
        for batch in batches:
            inputs, expected, rounding = prepared[batch]
            splits = splits_to_try(config, batch, options.heads, sum(lanes), sms)
            if table[batch][0] == config:
                splits = sorted({*splits, table[batch][1]})
            for count in splits:
                if time.monotonic() - start > options.seconds:
                    print(f"out of time before {name_of(config)} B={batch}")
                    break
                try:
                    actual = launch(config, count, *inputs[0].launch_arguments())
                    assert_decode_close(actual, expected, rounding)
                    us = time_us([_call(config, count, each) for each in inputs])
                except Exception as fault:
                    # Other variants' times are wanted, whatever becomes of this one.
                    cells.append(f"B={batch}/{count}: {type(fault).__name__} {str(fault).splitlines()[0][:120]}")
                    continue
                chosen = "*" if table[batch] == (config, count) else ""
                cells.append(f"B={batch}/{count}{chosen}: {us:.1f}")
                best[batch] = min(best.get(batch, (us, "")), (us, f"{name_of(config)}/{count}"))
        print(name_of(config).ljust(16) + "  ".join(cells), flush=True)
    for batch, (us, name) in best.items():
        ratio = f", {us / peers[batch]:.2f} x FlashMLA" if batch in peers else ""
        print(f"best B={batch}: {us:.1f} us with {name}{ratio}")
    return 0


def _call(config: DecodeConfig, splits: int, inputs: DecodeInputs) -> Callable[[], object]:
    return lambda: launch(config, splits, *inputs.launch_arguments())


if __name__ == "__main__":
    sys.exit(main())
