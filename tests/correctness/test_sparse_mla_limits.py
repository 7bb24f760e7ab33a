"""What the sparse-MLA decode refuses, what it chooses, and how its work grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from dsv4_kernels import layout, sparse_mla_decode
from dsv4_kernels.card import CARDS, Card
from dsv4_kernels.sparse_mla import compile_cases
from dsv4_kernels.sparse_mla_table import choose, configurations, name_of, split_count
from kit.cache import DecodeCase, DecodeInputs, Source, build
from kit.decode import decode, runnable_configurations

CASE = DecodeCase(2, 1, 8, Source(64, 1, 4, (3, 4)), Source(2, 3, 4, (1, 2)))


@pytest.mark.parametrize(
    ("change", "error", "complaint"),
    [
        (lambda i: i.replace(q=i.q.float()), TypeError, "q is torch.float32"),
        (lambda i: i.replace(q=i.q[..., :256]), ValueError, r"q is \(2, 1, 8, 256\)"),
        (lambda i: i.replace(q=i.q.repeat(1, 1, 17, 1)), ValueError, "1 to 128 heads"),
        (lambda i: i.replace(head_dim_v=448), ValueError, "head_dim_v is 448"),
        (lambda i: i.replace(indices=i.indices.long()), TypeError, "indices is torch.int64"),
        (lambda i: i.replace(indices=i.indices[:1]), ValueError, r"indices is \(1, 1, 4\)"),
        (lambda i: i.replace(topk_length=i.topk_length[:1]), ValueError, r"topk_length is \(1,\)"),
        (lambda i: i.replace(topk_length=i.topk_length.long()), TypeError, "topk_length is torch.int64"),
        (lambda i: i.replace(extra_topk_length=i.topk_length[:, None]), ValueError, "extra_topk_length is"),
        (lambda i: i.replace(attn_sink=i.attn_sink[:7]), ValueError, r"attn_sink is \(7,\)"),
        (lambda i: i.replace(attn_sink=i.attn_sink.bfloat16()), TypeError, "attn_sink is torch.bfloat16"),
        (lambda i: i.replace(extra_indices=None), ValueError, "extra_k_cache is given without extra_indices"),
        (lambda i: i.replace(extra_k_cache=None), ValueError, "extra_indices is given without extra_k_cache"),
        (lambda i: i.replace(extra_k_cache=None, extra_indices=None), ValueError, "extra_topk_length is given"),
        (lambda i: i.replace(k_cache=i.k_cache[..., :576]), layout.LayoutError, "k_cache has shape"),
        (lambda i: i.replace(q=i.q.to("meta")), ValueError, "one device"),
    ],
)
def test_what_it_does_not_compute_is_refused(
    change: Callable[[DecodeInputs], DecodeInputs], error: type[Exception], complaint: str, device: torch.device
) -> None:
    with pytest.raises(error, match=complaint):
        sparse_mla_decode(*change(build(CASE, device)).arguments())


def test_no_rows_give_empty_results(device: torch.device) -> None:
    inputs = build(CASE, device)
    none = inputs.replace(q=inputs.q[:0], indices=inputs.indices[:0], topk_length=inputs.topk_length[:0])
    none = none.replace(extra_k_cache=None, extra_indices=None, extra_topk_length=None)
    out, lse = decode(none)
    assert out.shape == (0, 1, 8, 512)
    assert lse.shape == (0, 8, 1)


@pytest.mark.field_case("K29", "K30")
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_every_shape_has_a_configuration_that_is_compiled_and_proved(card: Card) -> None:
    compiled = {case.name for case in compile_cases(card)}
    for heads in range(1, 129):
        for rows in (1, 2, 4, 5, 16, 64, 65, 128, 4096, 100_000):
            for interpreted in (False, True):
                config = choose(card.name, rows, heads, interpreted).config
                assert config in configurations(card.name)
                assert config.kernel == "triton" or not interpreted
                assert {f"sparse_mla[{name_of(config)},{how}]" for how in ("whole", "split")} <= compiled


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_few_rows_fill_the_card_and_many_are_not_split(card: Card) -> None:
    rule = choose(card.name, 1, 64)
    tiles = 640 // rule.config.block_n
    head_tiles = -(-64 // rule.config.block_h)
    assert split_count(rule, 1, 64, 640, card.sms) == min(tiles, int(card.sms * rule.programs_per_sm) // head_tiles, 64)
    assert split_count(choose(card.name, 4096, 64), 4096, 64, 640, card.sms) == 1
    assert split_count(rule, 1, 64, 0, card.sms) == 1


def test_work_follows_the_lengths_and_not_the_width(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """c128's index tensor is as wide as the maximum context, whatever the request's length."""
    config = runnable_configurations()[0]
    work = {}
    for width in (64, 8192 if device.type == "cpu" else 2**20):
        inputs = build(DecodeCase(1, 1, 8, Source(256, 1, 64, (9,)), Source(2, 69, 64, (33,))), device)
        wide = torch.zeros((1, 1, width), dtype=torch.int32, device=device)
        wide[:, :, :64] = inputs.extra_indices
        inputs = inputs.replace(extra_indices=wide)
        work[width] = _products(lambda: decode(inputs, config, splits=4), monkeypatch) if device.type == "cpu" else (  # noqa: B023
            _microseconds(lambda: decode(inputs, config, splits=4))  # noqa: B023
        )  # fmt: skip
    narrow, wide_work = work.values()
    if device.type == "cpu":
        # Interpreted, matrix products are counted: 8 a tile, for one tile of 9 tokens and two of 33.
        assert narrow == wide_work == 8 * 3
    else:
        # Work by width would be thousands of times as much; launch times alone vary by less than this.
        assert wide_work < 3 * narrow


def _products(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    from triton.runtime.interpreter import interpreter_builder

    count = 0
    original = type(interpreter_builder).create_dot

    def counting(self: object, *arguments: object) -> object:
        nonlocal count
        count += 1
        return original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(type(interpreter_builder), "create_dot", counting)
        call()
    return count


def _microseconds(call: Callable[[], object]) -> float:
    """The fastest of ten rounds: other workers share the GPU."""
    rounds = []
    for _ in range(10):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20):
            call()
        end.record()
        torch.cuda.synchronize()
        rounds.append(begin.elapsed_time(end) * 1e3 / 20)
    return min(rounds)
