"""What the kernels are to reach beside their peers, as data, and how far a run got (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfgate.kernelbench.shapes import DecodeShape, HcShape, IndexerShape, Shape, TopKShape

OURS = "ours"
OURS_SPLIT = "ours, no merge"
"""The pre-norm's partial sums alone, for a peer that leaves theirs to a later kernel."""
MINE = (OURS, OURS_SPLIT)
Cell = tuple[Shape, str]
"""A shape and the implementation that was timed on it."""


@dataclass(frozen=True)
class Bar:
    """time(over) / time(under) is to be at most, or at least, ``limit``."""

    name: str
    over: Cell
    under: Cell
    limit: float
    at_most: bool = True


@dataclass(frozen=True)
class Reached:
    """How far a run got: ``value`` is None where one of the two was not measured."""

    bar: Bar
    value: float | None

    @property
    def state(self) -> str:
        if self.value is None:
            return "not measured"
        good = self.value <= self.bar.limit if self.bar.at_most else self.value >= self.bar.limit
        return "reached" if good else "missed"


def decode(batch: int) -> DecodeShape:
    return DecodeShape(batch, 64, 128, 512)


def _slower(shape: Shape, peer: str, limit: float) -> Bar:
    return Bar(f"{shape.key} over {peer}", (shape, OURS), (shape, peer), limit)


def _faster(shape: Shape, peer: str, limit: float) -> Bar:
    return Bar(f"{peer} over ours, {shape.key}", (shape, peer), (shape, OURS), limit, at_most=False)


def _wide(batch: int, length: int) -> Bar:
    wide, close = IndexerShape(batch, length, 262_144), IndexerShape(batch, length, length)
    return Bar(f"indexer-B{batch}-L{length} max 262144 over max {length}", (wide, OURS), (close, OURS), 1.03)


TOPK = TopKShape(64, 65_536)
BARS: tuple[Bar, ...] = (
    *(_slower(decode(b), "FlashMLA", x) for b, x in ((1, 1.0), (16, 1.15), (64, 1.25), (128, 1.25))),
    *(_faster(decode(b), "SGLang Triton", x) for b, x in ((1, 20), (16, 80), (64, 100), (128, 200))),
    *(
        _slower(IndexerShape(b, length, length), "DeepGEMM", 1.25)
        for b, length in ((16, 16_384), (64, 2048), (64, 16_384))
    ),
    _wide(64, 512),
    _wide(64, 16_384),
    _slower(TOPK, "SGLang v2", 1.5),
    _faster(TOPK, "torch.topk", 2.0),
    *(_slower(HcShape(t), "DeepGEMM split", 1.2) for t in (1, 64)),
    *(
        Bar(
            f"{HcShape(t).key} without merge over DeepGEMM split",
            (HcShape(t), OURS_SPLIT),
            (HcShape(t), "DeepGEMM split"),
            1.2,
        )
        for t in (1, 64)
    ),
    *(_slower(HcShape(t), "DeepGEMM", 1.2) for t in (1, 64)),
    _faster(HcShape(1), "torch fp32", 1.5),
)

# Beside the bars': what the peers do when the maximum grows, and a padded peer.
QUICK_EXTRA: tuple[Shape, ...] = (IndexerShape(64, 512, 16_384), DecodeShape(16, 16, 128, 512))


def quick_shapes() -> frozenset[Shape]:
    """The shapes of the quick share: those of every bar, and a few beside them."""
    return frozenset([shape for bar in BARS for shape, _ in (bar.over, bar.under)]) | frozenset(QUICK_EXTRA)


def reached(medians: Mapping[Cell, float]) -> list[Reached]:
    """Every bar with its value from the median times of one run."""
    found = []
    for bar in BARS:
        over, under = medians.get(bar.over), medians.get(bar.under)
        found.append(Reached(bar, over / under if over is not None and under else None))
    return found
