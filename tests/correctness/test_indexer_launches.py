"""What is launched, and what is read and allocated: work follows lengths, launches follow shapes, oracles chunk."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels import hc_prenorm, hyper_connection, indexer, paged_mqa_logits, topk, topk_transform
from dsv4_kernels.card import CARDS
from dsv4_kernels.reference import indexer as indexer_oracle
from kit import compiled, launches, strategies_hc, strategies_indexer, strategies_topk
from kit.compare import assert_bitwise_equal
from kit.decode import recorded
from kit.strategies_indexer import IndexerCase
from kit.strategies_topk import TopKCase
from torch.utils._python_dispatch import TorchDispatchMode

META = torch.device("meta")


def call_indexer(rows: int, clean: bool = False) -> None:
    q = torch.empty(rows, 1, 64, 128, dtype=torch.float8_e4m3fn, device=META)
    cache = torch.empty(9, 64, 1, 132, dtype=torch.uint8, device=META)
    lengths = torch.empty(rows, dtype=torch.int32, device=META)
    table = torch.empty(rows, 4, dtype=torch.int32, device=META)
    paged_mqa_logits(q, cache, torch.empty(rows, 64, device=META), lengths, table, 200, clean)


def call_topk(rows: int, width: int, k: int) -> None:
    lengths = torch.empty(rows, dtype=torch.int32, device=META)
    table = torch.empty(rows, width // 64 + 1, dtype=torch.int32, device=META)
    topk_transform(torch.empty(rows, width, device=META), lengths, table, 64, k)


def call_hc(tokens: int) -> None:
    x = torch.empty(tokens, 16_384, dtype=torch.bfloat16, device=META)
    hc_prenorm(x, torch.empty(24, 16_384, device=META), 1e-6)


CALLS = {
    "indexer": (indexer, [lambda n=n: call_indexer(n, n % 2 == 0) for n in (1, 2, 8, 9, 64, 65, 512, 513, 4096, 9000)]),
    "topk": (
        topk,
        [
            lambda w=w, k=k: call_topk(3, w, k)
            for w in (5, 4096, 16_384, 16_385, 65_544, 65_536, 262_208, 1_048_577)
            for k in (1, 512, 513, 1024, 2048)
        ],
    ),
    "hyper_connection": (hyper_connection, [lambda n=n: call_hc(n) for n in (1, 16, 17, 64, 65, 512, 513, 4097, 9000)]),
}


@pytest.mark.field_case("K29", "K30")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_launch_is_among_the_compiled_configurations(name: str, card) -> None:
    module, calls = CALLS[name]
    announced = [
        (
            case.kernel.__name__,
            case.num_warps,
            dict(case.constexprs) | {"num_stages": case.num_stages},
            set(case.aligned),
        )
        for case in compiled.cases(name, card)
    ]
    with launches.recorded(module, card) as log:
        for call in calls:
            call()
    assert log
    for launch in log:
        keywords = dict(launch.keywords) | ({"INTERPRET": False} if "INTERPRET" in dict(launch.keywords) else {})
        warps = keywords.pop("num_warps")
        keywords.pop("launch_pdl", None)  # how it is launched, not what is compiled
        found = any(
            (kernel, num_warps, aligned) == (launch.kernel, warps, launch.aligned)
            and keywords.items() <= constexprs.items()
            for kernel, num_warps, constexprs, aligned in announced
        )
        how = f"{keywords}, {warps} warps and multiples of 16 in {sorted(launch.aligned)}"
        assert found, f"{launch.kernel} is launched on {card.name} with {how}, uncompiled"


@pytest.mark.field_case("K20")
def test_launches_do_not_depend_on_lengths_or_the_maximum(device: torch.device) -> None:
    logs = []
    for lengths in ((0, 0, 0), (5, 700, 64)):
        inputs = strategies_indexer.build(IndexerCase(lengths=(5, 700, 64)), device)
        rows = strategies_topk.build(TopKCase(lengths=(5, 700, 64), width=5000), device)
        chosen = torch.tensor(lengths, dtype=torch.int32, device=device)
        with launches.recorded(indexer) as first, launches.recorded(topk) as second:
            paged_mqa_logits(*inputs.replace(seq_lens=chosen).arguments())
            topk_transform(*rows.replace(seq_lens=chosen).arguments())
        logs.append((tuple(first), tuple(second)))
    assert logs[0] == logs[1], "a launch depends on the lengths: a captured graph would go stale"
    grids = []
    for most in (700, 262_144):
        with launches.recorded(indexer) as log:
            paged_mqa_logits(*inputs.replace(max_seq_len=most).arguments())
        grids.append([launch.grid for launch in log])
    assert grids[0] == grids[1], "the indexer's grid grows with the maximum length"


@pytest.mark.field_case("K09", "K20")
def test_a_recorded_launch_follows_lengths_and_padding(device: torch.device) -> None:
    """Recorded on a batch without tokens, then run for 3, 4 and 1 real rows with growing lengths."""
    inputs = strategies_indexer.build(IndexerCase(lengths=(600,) * 4, max_seq_len=600), device)
    lengths = torch.zeros_like(inputs.seq_lens)
    inputs = inputs.replace(seq_lens=lengths)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        logits = paged_mqa_logits(*inputs.arguments(), clean_logits=True)
        return logits, topk_transform(logits, lengths, inputs.page_table, 64)

    (logits, indices), run, how = recorded(step)
    run()
    assert (indices == -1).all()
    for rows, length in ((3, 70), (4, 600), (1, 520)):
        lengths.copy_(torch.tensor([length] * rows + [0] * (4 - rows)))
        run()
        assert_bitwise_equal((logits, indices), step(), f"{how} launch for {rows} rows of {length}")


@pytest.mark.field_case("K26", "K35")
def test_the_indexer_oracle_chunks(device: torch.device) -> None:
    inputs = strategies_indexer.build(IndexerCase(lengths=(20_000,)), device)
    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dtype == torch.float32:
                sizes.append(result.numel())
            return result

    with Watch():
        whole = indexer_oracle.paged_mqa_logits(*inputs.arguments())
    # A chunk's keys are the largest thing it holds; [tokens, heads] of the whole row would be 1,280,000.
    assert max(sizes) <= indexer_oracle.CHUNK * indexer_oracle.HEAD_DIM, "the oracle holds more than a chunk"
    part = indexer_oracle.paged_mqa_logits(*inputs.replace(seq_lens=inputs.seq_lens // 2).arguments())
    assert torch.allclose(part[:, :10_000], whole[:, :10_000], rtol=1e-5, atol=1e-3)


def test_an_hc_launch_reads_x_where_it_lies(device: torch.device) -> None:
    x, fn, eps = strategies_hc.build(strategies_hc.HcCase(tokens=20, strided=True), device)
    with launches.recorded(hyper_connection) as log:
        hc_prenorm(x, fn, eps)
    assert log[0].arguments[0] == (tuple(x.shape), x.stride(), torch.bfloat16), "x was copied before the launch"
