"""What is timed: the shapes of the four kernels, with the least work that each must do (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["bf16", "fp8", "tf32"]

TOKEN_BYTES = 584
"""Bytes of a token in the V4 layout of the sparse-MLA cache: dsv4_kernels.layout."""
HEAD_DIM = 512
INDEX_HEADS, INDEX_DIM, INDEX_PAGE = 64, 128, 64
INDEX_ROW_BYTES = INDEX_DIM + 4
HC_WIDTH, HC_OUTPUTS = 4 * 4096, 24


@dataclass(frozen=True)
class Work:
    """The least that a call has to do: bytes to and from memory, each counted once, and FLOPs on matrix units.

    ``kind`` says which rate bounds the FLOPs.
    """

    bytes: int
    flops: int
    kind: Kind = "bf16"


@dataclass(frozen=True)
class DecodeShape:
    """Sparse decode of ``batch`` rows of ``heads`` heads over ``window`` and ``extra`` cache tokens each."""

    batch: int
    heads: int
    window: int
    extra: int

    @property
    def key(self) -> str:
        rows = f"{self.window}+{self.extra}" if self.extra else str(self.window)
        return f"decode-B{self.batch}-H{self.heads}-{rows}"

    @property
    def work(self) -> Work:
        tokens = self.batch * (self.window + self.extra)
        rows = self.batch * self.heads
        queries_and_outputs = rows * (2 * 2 * HEAD_DIM + 4)
        # Scores and weighted sum: 2 * 512 multiply-adds a head and token.
        flops = 4 * HEAD_DIM * self.heads * tokens
        return Work(tokens * (TOKEN_BYTES + 4) + queries_and_outputs, flops, "bf16")


@dataclass(frozen=True)
class IndexerShape:
    """Indexer logits of ``batch`` rows of ``length`` compressed tokens, in a server whose rows may have ``maximum``."""

    batch: int
    length: int
    maximum: int

    def __post_init__(self) -> None:
        _reaches(self.length, self.maximum)

    @property
    def key(self) -> str:
        return f"indexer-B{self.batch}-L{self.length}-max{self.maximum}"

    @property
    def work(self) -> Work:
        tokens = self.batch * self.length
        pages = self.batch * -(-self.length // INDEX_PAGE)
        queries = self.batch * (INDEX_HEADS * INDEX_DIM + 4 * INDEX_HEADS)
        return Work(tokens * (INDEX_ROW_BYTES + 4) + 4 * pages + queries, 2 * tokens * INDEX_HEADS * INDEX_DIM, "fp8")


@dataclass(frozen=True)
class TopKShape:
    """The ``topk`` largest of ``length`` scores of each of ``batch`` rows that are ``maximum`` wide (0: the length).

    A server's scores are as wide as its page table: 262,208 where it was started for 1,048,576 tokens of context.
    """

    batch: int
    length: int
    topk: int = 512
    maximum: int = 0

    def __post_init__(self) -> None:
        # So that a row as wide as it is long is one shape, however it was asked for.
        object.__setattr__(self, "maximum", self.maximum or self.length)
        _reaches(self.length, self.maximum)

    @property
    def key(self) -> str:
        wide = "" if self.maximum == self.length else f"-max{self.maximum}"
        return f"topk-B{self.batch}-L{self.length}-k{self.topk}{wide}"

    @property
    def work(self) -> Work:
        return Work(self.batch * (4 * self.length + 4 * self.topk), 0)


@dataclass(frozen=True)
class HcShape:
    """The hyper-connection pre-norm of ``batch`` tokens: [batch, 16384] bf16 to 24 mixes, with fp32 weights."""

    batch: int

    @property
    def key(self) -> str:
        return f"hc-T{self.batch}"

    @property
    def work(self) -> Work:
        moved = self.batch * (2 * HC_WIDTH + 4 * HC_OUTPUTS) + 4 * HC_OUTPUTS * HC_WIDTH
        return Work(moved, 2 * self.batch * HC_WIDTH * HC_OUTPUTS, "tf32")


Shape = DecodeShape | IndexerShape | TopKShape | HcShape
KERNELS: Mapping[str, type[Shape]] = {
    "decode": DecodeShape,
    "indexer": IndexerShape,
    "topk": TopKShape,
    "hc": HcShape,
}

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROWS = ((128, 0), (128, 512), (128, 8192))
HEADS = (16, 32, 64, 128)
LENGTHS = (512, 2048, 8192, 16_384, 65_536, 262_144)
MAXIMA = (16_384, 65_536, 262_144)
"""Beside the length itself: 64 Ki, 256 Ki and 1 Mi tokens of context, compressed 4:1."""
TABLE_WIDTHS = tuple(maximum + INDEX_PAGE for maximum in MAXIMA)
"""What SGLang's page tables of these contexts hold, and so how wide its scores are: a page more than the context."""


def _reaches(length: int, maximum: int) -> None:
    if length > maximum:
        raise ValueError(f"a row of {length} tokens is longer than the maximum of {maximum}")


def kernel_of(shape: Shape) -> str:
    """The name of the kernel that the shape is for."""
    return next(name for name, kind in KERNELS.items() if type(shape) is kind)


def describe(shape: Shape) -> dict[str, Any]:
    """The shape as it stands in a stored benchmark."""
    return {"kernel": kernel_of(shape), **asdict(shape)}


def restore(stored: Mapping[str, Any]) -> Shape:
    """The shape of a stored benchmark. Raises ValueError naming what cannot be read."""
    fields = dict(stored)
    name = fields.pop("kernel", None)
    if name not in KERNELS:
        raise ValueError(f"kernel {name!r} is none of {', '.join(KERNELS)}")
    try:
        return KERNELS[name](**fields)
    except TypeError as error:
        raise ValueError(f"shape of {name}: {error}") from None


def every_shape() -> tuple[Shape, ...]:
    """All shapes that the whole benchmark times, each once, in its order."""
    shapes: list[Shape] = []
    shapes += [
        DecodeShape(batch, heads, window, extra) for heads in HEADS for window, extra in ROWS for batch in BATCHES
    ]
    for length in LENGTHS:
        maxima = (length, *(m for m in MAXIMA if m > length))
        shapes += [IndexerShape(batch, length, maximum) for batch in BATCHES for maximum in maxima]
    for length in LENGTHS:
        # The longest context's table stands beside every length: it is the server that the others are served by too.
        widths = (length, *(w for m, w in zip(MAXIMA, TABLE_WIDTHS, strict=True) if m > length or m == MAXIMA[-1]))
        shapes += [TopKShape(batch, length, maximum=width) for batch in BATCHES for width in widths]
    shapes += [HcShape(tokens) for tokens in (*BATCHES, 512, 1024, 4096)]
    return tuple(shapes)
