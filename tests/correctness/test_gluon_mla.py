"""The Gluon decode for Hopper, compiled and emulated without a card, equals the oracle in every interleaving of its warps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dsv4_kernels import layout
from hypothesis import settings
from kit.cache import DecodeCase, DecodeInputs, Source, build
from kit.gluon_compiled import kernels
from kit.gluon_decode import assert_right, decode

INTERLEAVINGS = {"dev": 4, "deep": 6}.get(settings.get_current_profile_name(), 2)


def source(length: int | None, topk: int, page_size: int = 64, **more: Any) -> Source:
    """A cache with twice the tokens that its one row may name; ``length`` None: the call has no lengths."""
    lengths = None if length is None else (length,)
    return Source(page_size, pages=2 * topk // page_size + 2, topk=topk, lengths=lengths, **more)


def case(main: Source, extra: Source | None, heads: int = 64, **more: Any) -> DecodeCase:
    """One row of ``heads`` heads."""
    return DecodeCase(batch=1, queries=1, heads=heads, main=main, extra=extra, **more)


# A tile is 64 tokens of one cache. (case, splits)
CASES = {
    "no tile": (case(source(0, 64), source(-3, 64, 2), sink="mixed"), 1),
    "one tile": (case(source(64, 64), source(0, 64)), 1),
    "a single token in the second cache": (case(source(0, 64, 256), source(1, 64, 2)), 1),
    "two tiles, neither full": (case(source(50, 64, 256), source(63, 64, 2)), 1),
    "three tiles, 24 heads": (case(source(65, 128, 256), source(1, 64), 24, strided=frozenset({"topk_length"})), 1),
    "seven tiles": (case(source(192, 192, 256), source(256, 256), spread=4), 1),
    "65 heads": (case(source(64, 64), source(1, 64, 2), 65), 1),
    "128 heads": (case(source(129, 192), source(64, 64, 2), 128), 1),
    "two queries of two requests": (
        DecodeCase(2, 2, 24, Source(64, 4, 64, (1, 64)), Source(2, 80, 64, (64, 0)), strided=frozenset({"topk_length"})), 1
    ),
    "lanes all dead": (case(source(64, 64, hole=1.0), source(100, 128, hole=1.0), sink="-inf"), 1),
    "a dead tile before a live one": (case(source(128, 128, hole=0.6, holes_at="front"), source(64, 64)), 1),
    "mostly dead lanes": (case(source(64, 64, hole=0.97), source(320, 320, hole=0.97), poison=0x7F), 1),
    "sinks of +inf": (case(source(64, 64), source(20, 64), sink="+inf"), 1),
    "sinks of -inf": (case(source(64, 64), source(20, 64), sink="-inf"), 1),
    "sinks of 3.4e38": (case(source(64, 64), source(20, 64), sink="huge"), 1),
    "sinks of every kind": (case(source(64, 64), source(20, 64), sink="mixed"), 1),
    "split in three": (case(source(192, 192, 256), source(256, 256)), 3),
    "split, and no tokens": (case(source(0, 64), source(0, 64), 24), 2),
    "split, 65 heads, most splits empty": (case(source(64, 64), source(65, 128, 2), 65), 7),
    "split, a split of dead lanes": (case(source(64, 64, hole=1.0), source(64, 64)), 2),
    "no flag, strided": (case(source(None, 129), None, 24, sink="none", strided=frozenset({"q", "indices"})), 1),
    "the second cache strided, split": (
        case(source(65, 129), source(None, 192), 65, sink="none", strided=frozenset({"extra_indices"})), 3
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(INTERLEAVINGS))
@pytest.mark.parametrize("name", CASES)
def test_equals_the_oracle_in_every_interleaving(name: str, seed: int) -> None:
    described, splits = CASES[name]
    inputs = build(described, "cpu")
    assert_right(decode(inputs, splits, seed), inputs)


def test_a_scale_of_zero_is_two_to_the_minus_127() -> None:
    inputs = with_scale(0)
    assert_right(decode(inputs), inputs)


def test_a_scale_of_255_is_nan_for_the_row_that_reads_it_alone() -> None:
    inputs = with_scale(255)
    out, lse = decode(inputs)
    assert out[0].isnan().all()
    assert lse[0].isnan().all()
    per_request = ("q", "indices", "topk_length", "extra_indices", "extra_topk_length")
    other = inputs.replace(**{name: getattr(inputs, name)[1:] for name in per_request})
    assert_right((out[1:], lse[1:]), other)


def with_scale(byte: int) -> DecodeInputs:
    """Two requests; the first's first token has this scale in its second group."""
    inputs = build(DecodeCase(2, 1, 24, Source(64, 4, 64, (40, 64)), Source(2, 80, 64, (64, 30))), "cpu")
    token = inputs.indices[0, 0, :1].long()
    # The other request must not share it.
    inputs.indices[1][inputs.indices[1] == token] = -1
    page, _, scales_at = layout.addresses(layout.geometry(inputs.k_cache), token)
    layout.physical_bytes(inputs.k_cache)[page, scales_at + 1] = byte
    return inputs


def test_each_warpgroup_has_the_registers_that_it_was_given() -> None:
    for each in kernels().values():
        assert each.warps == 12
        asked = {int(n) for n in re.findall(r"setmaxnreg\.\S+[ \t]+(\d+)", each.ptx)}
        assert {128, 160, 216} <= asked  # the reader's, the second consumer's and the first one's
        assert set(re.findall(r"wgmma\.mma_async\S*?(m\d+n\d+k\d+)", each.ptx)) == {"m64n64k16", "m64n256k16"}
