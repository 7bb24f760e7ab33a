"""Top-k inputs from a frozen description, and hypothesis strategies of them; poison comes with generation."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from kit.arguments import TopKInputs

GARBAGE_PAGE = 2**20
# What lies past a row's length would win if it were looked at.
POISON_SCORE = float("inf")
PATTERNS = (
    "normal", "few_values", "all_equal", "winners_and_zeros", "mostly_-inf", "below_fp16", "rising", "falling",
    "hot_page", "crowded", "signed_zeros", "some_nan", "all_nan",
)  # fmt: skip


@dataclass(frozen=True)
class TopKCase:
    """A top-k call: one row a length, of scores of one of PATTERNS. `width` None: the longest length."""

    lengths: tuple[int, ...]
    pattern: str = "normal"
    topk: int = 512
    page_size: int = 64
    width: int | None = None
    spare_pages: int = 0
    strided: bool = False
    seed: int = 0


def row_scores(pattern: str, count: int, rng: torch.Generator) -> torch.Tensor:
    """`count` scores that hold one difficulty: ties, values fp16 can't hold, order, or winners all in one place."""
    normal = torch.randn(count, generator=rng)
    place = torch.arange(count)
    some = torch.rand(count, generator=rng)
    patterns = {
        "normal": lambda: normal,
        "few_values": lambda: torch.randint(0, 4, (count,), generator=rng).float(),
        "all_equal": lambda: torch.full((count,), -1.5),
        "winners_and_zeros": lambda: (some < 0.03).float(),
        "mostly_-inf": lambda: torch.where(some < 0.1, normal, -torch.inf),
        "below_fp16": lambda: torch.where(some < 0.3, -70_000.0 - normal.abs(), -torch.inf),
        "rising": lambda: place.float(),
        "falling": lambda: -place.float(),
        "hot_page": lambda: torch.where(place // 640 == 1, normal + 100, normal),
        "crowded": lambda: torch.where(place % 1024 < 64, normal + 100, normal),
        "signed_zeros": lambda: torch.where(some < 0.5, torch.tensor(-0.0), torch.tensor(0.0)),
        "some_nan": lambda: torch.where(some < 0.3, torch.nan, normal),
        "all_nan": lambda: torch.full((count,), torch.nan),
    }
    return patterns[pattern]()


def build(case: TopKCase, device: torch.device | str) -> TopKInputs:
    """Generate the inputs of `case`: values are drawn on the CPU, so that they are the same on every machine."""
    rng = torch.Generator().manual_seed(case.seed)
    width = max(1, *case.lengths) if case.width is None else case.width
    rows = len(case.lengths)
    stride = width + (5 if case.strided else 0)
    scores = torch.full((rows, stride), POISON_SCORE)
    needed = [(min(max(length, 0), width) + case.page_size - 1) // case.page_size for length in case.lengths]
    table = torch.full((rows, (width + case.page_size - 1) // case.page_size + case.spare_pages), GARBAGE_PAGE)
    table = table.to(torch.int32)
    for row, length in enumerate(case.lengths):
        count = min(max(length, 0), width)
        scores[row, :count] = row_scores(case.pattern, count, rng)
        table[row, : needed[row]] = (torch.randperm(2 * needed[row] + 1, generator=rng)[: needed[row]] + row).int()
    return TopKInputs(
        scores=scores.to(device)[:, :width],
        seq_lens=torch.tensor(case.lengths, dtype=torch.int32, device=device),
        page_table=table.to(device),
        page_size=case.page_size,
        topk=case.topk,
    )


@functools.cache
def edges(topk: int) -> tuple[int, ...]:
    """Lengths around 0, pages, k, its multiples, and where a row begins to be narrowed."""
    around = {edge + step for edge in (0, 64, topk, 2 * topk, 4 * topk, 1024, 4096) for step in (-1, 0, 1, 2, 3)}
    return tuple(sorted(around | {-4}))


@st.composite
def topk_cases(draw: st.DrawFn, most_rows: int = 3, most_tokens: int = 5000, most_k: int = 1024) -> TopKCase:
    """Any top-k call of up to `most_rows` rows of up to `most_tokens` scores."""
    topk = draw(st.sampled_from([k for k in (512, 512, 1, 128, 192, 1024, 2048) if k <= most_k]))
    one = st.sampled_from([edge for edge in edges(topk) if edge <= most_tokens]) | st.integers(0, most_tokens)
    lengths = tuple(draw(st.lists(one, min_size=1, max_size=most_rows)))
    return TopKCase(
        lengths=lengths,
        pattern=draw(st.sampled_from(PATTERNS)),
        topk=topk,
        page_size=draw(st.sampled_from([64, 64, 1, 2, 256])),
        width=draw(st.sampled_from([None, max(1, *lengths) + 3, most_tokens, max(1, max(lengths) - 2)])),
        spare_pages=draw(st.sampled_from([0, 2])),
        strided=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
