"""hypothesis strategies of sparse-MLA decode cases; sizes follow the engine, since the interpreter pays by the tile."""

from __future__ import annotations

from hypothesis import strategies as st

from kit.cache import POISONS, SINKS, DecodeCase, Source

STRIDED = ("q", "indices", "topk_length", "extra_indices", "extra_topk_length")
HEADS = (8, 16, 32, 64, 128)
ODD_HEADS = (1, 5, 24, 63, 65, 96)
# Odd page counts, as FlashMLA's tests use; the last page is where off-by-one addressing shows.
PAGES = (1, 2, 3, 53, 61, 69)


def edges(limit: int) -> list[int]:
    """Lengths where loops, tiles, pages and compression change: around 0, 16, 32 ... 512, residues mod 4."""
    near = {edge + step for edge in (0, 4, 16, 32, 64, 128, 256, 512, limit) for step in (-1, 0, 1, 2, 3)}
    return sorted(length for length in near | {-4, limit + 7} if length <= limit + 7)


def lengths(batch: int, topk: int) -> st.SearchStrategy[tuple[int, ...] | None]:
    """One length a request, negative and past ``topk`` included, or no lengths at all."""
    one = st.sampled_from(edges(topk)) | st.integers(0, topk)
    return st.none() | st.tuples(*[one] * batch)


@st.composite
def sources(draw: st.DrawFn, batch: int, page_sizes: tuple[int, ...], most: int, pages: int | None = None) -> Source:
    """A cache and what is taken from it, up to ``most`` lanes a row."""
    page_size = draw(st.sampled_from(page_sizes))
    topk = draw(st.sampled_from([edge for edge in edges(most) if 1 <= edge <= most]) | st.integers(1, most))
    return Source(
        page_size=page_size,
        pages=pages or draw(st.sampled_from(PAGES if page_size <= 64 else PAGES[:3])),
        topk=topk,
        lengths=draw(lengths(batch, topk)),
        hole=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        holes_at=draw(st.sampled_from(["anywhere", "front", "middle", "tail"])),
        repeat=draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        pad_bytes=draw(st.sampled_from([0, 0, 16, 576, 4096])),
    )


@st.composite
def decode_cases(
    draw: st.DrawFn, most_rows: int = 3, most_lanes: int = 70, extra: bool | None = None, heads: tuple[int, ...] = ()
) -> DecodeCase:
    """Any decode call of up to ``most_rows`` query rows with up to ``most_lanes`` lanes in each cache."""
    queries = draw(st.integers(1, min(2, most_rows)))
    batch = draw(st.integers(1, most_rows // queries))
    with_extra = draw(st.booleans()) if extra is None else extra
    return DecodeCase(
        batch=batch,
        queries=queries,
        heads=draw(st.sampled_from(heads or HEADS[:4] + ODD_HEADS[:4])),
        main=draw(sources(batch, (256, 64), most_lanes)),
        extra=draw(sources(batch, (64, 2), most_lanes)) if with_extra else None,
        sink=draw(st.sampled_from(SINKS)),
        spread=draw(st.integers(0, 3)),
        poison=draw(st.sampled_from(POISONS)),
        strided=frozenset(draw(st.lists(st.sampled_from(STRIDED), max_size=3))),
        seed=draw(st.integers(0, 2**16)),
    )
