"""The bytes of a V4 cache: sizes, places, round trips, and refusal of every other layout."""

from __future__ import annotations

import pytest
import torch
from dsv4_kernels import layout
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("page_size", "size"), [(256, 149_760), (64, 37_440), (2, 1_728)])
def test_physical_page_sizes(page_size: int, size: int) -> None:
    assert layout.page_bytes(page_size) == size
    cache = layout.allocate(3, page_size)
    assert cache.shape == (3, page_size, 1, 584)
    assert cache.stride(0) == size


@given(
    page_size=st.sampled_from([256, 64, 2]),
    page=st.integers(0, 2),
    slot=st.integers(0, 255),
    pad=st.sampled_from([0, 16, 576]),
)
def test_every_part_of_a_token_lies_where_the_format_says(page_size: int, page: int, slot: int, pad: int) -> None:
    slot %= page_size
    stride = layout.page_bytes(page_size) + pad
    buffer = torch.zeros(3 * stride, dtype=torch.uint8)
    cache = layout.view_pages(buffer, page_size, stride)
    nope = torch.full((1, 448), 1.0).to(torch.float8_e4m3fn)
    scales = torch.arange(1, 8, dtype=torch.uint8)[None] + 120
    data, padded = layout.pack_exact(nope, scales, torch.full((1, 64), -2.0))
    layout.write(cache, torch.tensor([page * page_size + slot]), data, padded)
    expected = torch.zeros_like(buffer)
    token = page * stride + slot * 576
    expected[token : token + 448] = 0x38  # 1.0 as fp8 e4m3
    expected[token + 448 : token + 576] = torch.tensor([0x00, 0xC0], dtype=torch.uint8).repeat(64)  # -2.0 as bf16
    scale = page * stride + page_size * 576 + slot * 8
    expected[scale : scale + 7] = scales[0]
    assert torch.equal(buffer, expected)


@given(seed=st.integers(0, 999), magnitude=st.sampled_from([1e-6, 1.0, 1e4]))
def test_packing_keeps_values_to_fp8_precision(seed: int, magnitude: float) -> None:
    rows = torch.randn(5, 512, generator=torch.Generator().manual_seed(seed)) * magnitude
    cache = layout.allocate(1, 64, fill=0xFF)
    tokens = torch.tensor([0, 7, 63, 1, 30])
    layout.write(cache, tokens, *layout.pack(rows))
    back = layout.unpack(cache, tokens)
    # e4m3 has 3 bits of mantissa: half a step is 2**-4 of a value, or 2**-10 of the scale below 2**-6 of it; a group's
    # scale is at most 2/448 of its largest value.
    groups = rows[:, :448].view(5, 7, 64)
    step = (groups.abs() * 2**-4).maximum(groups.abs().amax(-1, keepdim=True) * 2 / 448 * 2**-10)
    assert ((back[:, :448].view(5, 7, 64) - groups).abs() <= step).all()
    assert torch.equal(back[:, 448:], rows[:, 448:].bfloat16().float())


@pytest.mark.field_case("K16")
def test_every_scale_byte_is_a_power_of_two_and_255_is_nan() -> None:
    count = 256
    nope = torch.ones(count, 448).to(torch.float8_e4m3fn)
    scales = torch.arange(count, dtype=torch.uint8)[:, None].expand(-1, 7)
    cache = layout.allocate(1, 256)
    layout.write(cache, torch.arange(count), *layout.pack_exact(nope, scales, torch.zeros(count, 64)))
    values = layout.unpack(cache, torch.arange(count))[:, :448].double()
    assert torch.equal(values[:255, 0], 2.0 ** (torch.arange(255).double() - 127))
    assert torch.equal(values[:255], values[:255, :1].expand(-1, 448))
    assert values[255].isnan().all()


def _strided(page_stride: int, start: int = 0) -> torch.Tensor:
    return torch.zeros(80_000, dtype=torch.uint8)[start:].as_strided((2, 64, 1, 584), (page_stride, 584, 584, 1))


@pytest.mark.parametrize(
    ("cache", "complaint"),
    [
        (torch.zeros(2, 64, 1, 656, dtype=torch.uint8), r"\(2, 64, 1, 656\).*V3\.2"),
        (torch.zeros(2, 64, 1, 576, dtype=torch.uint8), r"\(2, 64, 1, 576\)"),
        (torch.zeros(2, 64, 584, dtype=torch.uint8), r"\[pages, page_size, 1, 584\]"),
        (torch.zeros(2, 64, 1, 584, dtype=torch.bfloat16), "bfloat16"),
        (layout.allocate(2, 256)[:, :100], "100 tokens a page"),
        (_strided(page_stride=576 * 64), "36864 bytes a page"),
        (_strided(page_stride=37_380), "multiples of 16"),
        (_strided(page_stride=37_440, start=4), "multiples of 16"),
        (torch.zeros(2, 64, 1, 1168, dtype=torch.uint8)[..., ::2], "strides"),
    ],
)
def test_any_other_layout_is_refused(cache: torch.Tensor, complaint: str) -> None:
    with pytest.raises(layout.LayoutError, match=complaint):
        layout.geometry(cache, "extra_k_cache")
