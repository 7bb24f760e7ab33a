"""Hyper-connection pre-norm inputs from a frozen description, and hypothesis strategies of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

PATTERNS = ("normal", "large", "tiny", "offset", "one_hot_stream", "zero_rows")


@dataclass(frozen=True)
class HcCase:
    """A pre-norm call; `strided` leaves NaN between the rows of both inputs."""

    tokens: int
    width: int = 1024
    outputs: int = 24
    pattern: str = "normal"
    eps: float = 1e-6
    strided: bool = False
    seed: int = 0


def build(case: HcCase, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return (x, fn, eps): values are drawn on the CPU, so that they are the same on every machine."""
    rng = torch.Generator().manual_seed(case.seed)
    gap = 24 if case.strided else 0
    x = torch.full((case.tokens, case.width + gap), torch.nan)
    fn = torch.full((case.outputs, case.width + gap), torch.nan)
    values = torch.randn(case.tokens, case.width, generator=rng)
    if case.pattern == "zero_rows":
        values[::2] = 0.0
    if case.pattern == "one_hot_stream":
        values[:, case.width // 4 :] *= 1e-3
    scale = {"large": 3e3, "tiny": 1e-4}.get(case.pattern, 1.0)
    x[:, : case.width] = values * scale + (10.0 if case.pattern == "offset" else 0.0)
    fn[:, : case.width] = torch.randn(case.outputs, case.width, generator=rng) * 0.02
    return x.bfloat16().to(device)[:, : case.width], fn.to(device)[:, : case.width], case.eps


@st.composite
def hc_cases(draw: st.DrawFn, most_tokens: int = 80, widths: tuple[int, ...] = (128, 384, 1024)) -> HcCase:
    """Any pre-norm call of up to `most_tokens` tokens, around the blocks' edges."""
    edges = [edge for edge in (0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 512, 513, 4097) if edge <= most_tokens]
    return HcCase(
        tokens=draw(st.sampled_from(edges) | st.integers(0, most_tokens)),
        width=draw(st.sampled_from(widths)),
        outputs=draw(st.sampled_from([24, 24, 4, 1, 31])),
        pattern=draw(st.sampled_from(PATTERNS)),
        eps=draw(st.sampled_from([1e-6, 1e-5, 1e-2])),
        strided=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
